#include "text/template/jinja/evaluator.h"

#include <string>
#include <utility>

#include "text/template/jinja/builtins.h"
#include "text/template/jinja/filters.h"
#include "text/template/python/access.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

PyValue evaluate_name(TemplateState& state, const TemplateExpr& e) {
  if (const PyValue* found = state.scope->find(e.name)) return *found;
  if (auto global = state.globals.find(e.name)) return *global;
  return PyValue::undefined(py_quote(e.name) + " is undefined");
}

PyValue evaluate_items(TemplateState& state, const TemplateExpr& e) {
  PyItems items;
  for (const ExprPtr& child : e.children) items.push_back(evaluate(state, *child));
  return e.kind == ExprKind::list ? PyValue::list(std::move(items)) : PyValue::tuple(std::move(items));
}

PyValue evaluate_dict(TemplateState& state, const TemplateExpr& e) {
  PyDict dict;
  for (std::size_t i = 0; i + 1 < e.children.size(); i += 2) {
    PyValue key = evaluate(state, *e.children[i]);
    dict.set(state.work, std::move(key), evaluate(state, *e.children[i + 1]));
  }
  return dict;
}

PyValue evaluate_concat(TemplateState& state, const TemplateExpr& e) {
  std::string text;
  for (const ExprPtr& child : e.children) {
    text += py_str(state.work, evaluate(state, *child));
    state.work.require_fits(text.size());
  }
  state.work.make(text.size());
  return text;
}

PyValue evaluate_binary(TemplateState& state, const TemplateExpr& e) {
  const PyValue left = evaluate(state, *e.children[0]), right = evaluate(state, *e.children[1]);
  state.line = e.line;
  return py_binary(state.work, e.op, left, right);
}

PyValue evaluate_compare(TemplateState& state, const TemplateExpr& e) {
  PyValue left = evaluate(state, *e.children[0]);
  for (std::size_t i = 0; i < e.compares.size(); ++i) {
    PyValue right = evaluate(state, *e.children[i + 1]);
    state.line = e.line;
    if (!py_compare(state.work, e.compares[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

PyValue evaluate_conditional(TemplateState& state, const TemplateExpr& e) {
  if (py_truth(evaluate(state, *e.children[0]))) return evaluate(state, *e.children[1]);
  if (e.children.size() > 2) return evaluate(state, *e.children[2]);
  return PyValue::undefined("the inline if-expression on line " + std::to_string(e.line) +
                            " evaluated to false and no else section was defined.");
}

PyValue evaluate_slice(TemplateState& state, const TemplateExpr& e) {
  const PyValue value = evaluate(state, *e.children[0]);
  PyItems bounds;
  for (std::size_t i = 1; i < 4; ++i) bounds.push_back(e.children[i] ? evaluate(state, *e.children[i]) : PyValue());
  state.line = e.line;
  return py_slice(state.work, value, bounds);
}

PyArgs evaluate_args(TemplateState& state, const CallExprs& call) {
  PyArgs args;
  for (const ExprPtr& e : call.positional) args.positional.push_back(evaluate(state, *e));
  for (const auto& [name, e] : call.keywords) args.keywords.emplace_back(name, evaluate(state, *e));
  if (call.star)
    for (PyValue& value : py_list(state.work, evaluate(state, *call.star))) args.positional.push_back(std::move(value));
  if (!call.star_star) return args;
  const PyValue keywords = evaluate(state, *call.star_star);
  if (!keywords.is(PyKind::dict)) py_fail("argument after ** must be a mapping, not " + py_type_name(keywords));
  for (const auto& [key, value] : keywords.dict().entries) {
    state.work.step();
    if (!key.is_string()) py_fail("keywords must be strings");
    args.keywords.emplace_back(key.text(), value);
  }
  return args;
}

bool evaluate_test(TemplateState& state, const TemplateExpr& e) {
  const PyValue subject = evaluate(state, *e.children[0]);
  const PyArgs args = evaluate_args(state, e.call);
  state.line = e.line;
  return apply_test(state.work, e.name, subject, args);
}

}  // namespace

PyValue evaluate(TemplateState& state, const TemplateExpr& e) {
  const PyWork::Level level(state.work);
  state.line = e.line;
  switch (e.kind) {
    case ExprKind::constant: return e.value;
    case ExprKind::name: return evaluate_name(state, e);
    case ExprKind::list:
    case ExprKind::tuple: return evaluate_items(state, e);
    case ExprKind::dict: return evaluate_dict(state, e);
    case ExprKind::logical_not: return !py_truth(evaluate(state, *e.children[0]));
    case ExprKind::logical_and:
    case ExprKind::logical_or: {
      PyValue left = evaluate(state, *e.children[0]);
      return py_truth(left) == (e.kind == ExprKind::logical_or) ? left : evaluate(state, *e.children[1]);
    }
    case ExprKind::unary: return py_unary(e.op, evaluate(state, *e.children[0]));
    case ExprKind::binary: return evaluate_binary(state, e);
    case ExprKind::concat: return evaluate_concat(state, e);
    case ExprKind::compare: return evaluate_compare(state, e);
    case ExprKind::conditional: return evaluate_conditional(state, e);
    case ExprKind::attribute: return py_attribute(evaluate(state, *e.children[0]), e.attribute);
    case ExprKind::item: {
      const PyValue value = evaluate(state, *e.children[0]);
      return py_item(state.work, value, evaluate(state, *e.children[1]));
    }
    case ExprKind::slice: return evaluate_slice(state, e);
    case ExprKind::call: return evaluate_call(state, e);
    case ExprKind::filter: return evaluate_filter(state, e);
    case ExprKind::test: return evaluate_test(state, e);
    case ExprKind::ns_name: break;
  }
  fail(ErrorKind::internal, {.cause = "an assignment target was evaluated"});
}

PyValue evaluate_call(TemplateState& state, const TemplateExpr& e, const PyValue* caller) {
  const PyValue callee = evaluate(state, *e.children[0]);
  PyArgs args = evaluate_args(state, e.call);
  if (caller) args.keywords.emplace_back("caller", *caller);
  state.line = e.line;
  if (callee.is(PyKind::undefined)) py_fail(callee.undefined_message());
  if (!callee.is(PyKind::object)) py_fail("'" + py_type_name(callee) + "' object is not callable");
  return callee.object().call(state.work, args);
}

PyValue evaluate_filter(TemplateState& state, const TemplateExpr& e, const PyValue* block_text) {
  const TemplateExpr* inner = e.children[0].get();
  const bool chained = block_text && inner;
  const PyValue subject = chained ? evaluate_filter(state, *inner, block_text)
                          : inner ? evaluate(state, *inner)
                                  : *block_text;
  const PyArgs args = evaluate_args(state, e.call);
  state.line = e.line;
  return apply_filter(state.work, e.name, subject, args);
}

}  // namespace qtrain
