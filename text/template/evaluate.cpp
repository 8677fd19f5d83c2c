#include <utility>

#include "text/template/interpreter.h"
#include "text/template/py_objects.h"
#include "text/template/py_ops.h"
#include "text/template/py_text.h"

namespace qtrain {

const PyValue* TemplateScope::find(std::string_view name) const {
  for (const TemplateScope* scope = this; scope; scope = scope->parent_.get())
    for (const auto& [key, value] : scope->variables_)
      if (key == name) return &value;
  return nullptr;
}

void TemplateScope::set(std::string_view name, PyValue value) {
  for (auto& [key, held] : variables_)
    if (key == name) {
      held = std::move(value);
      return;
    }
  variables_.emplace_back(name, std::move(value));
}

PyValue TemplateRun::evaluate(const TemplateExpr& e) {
  const PyWork::Level level(work_);
  line_ = e.line;
  switch (e.kind) {
    case ExprKind::constant: return e.value;
    case ExprKind::name: return evaluate_name(e);
    case ExprKind::list:
    case ExprKind::tuple: return evaluate_items(e);
    case ExprKind::dict: return evaluate_dict(e);
    case ExprKind::logical_not: return !py_truth(evaluate(*e.children[0]));
    case ExprKind::logical_and:
    case ExprKind::logical_or: {
      PyValue left = evaluate(*e.children[0]);
      return py_truth(left) == (e.kind == ExprKind::logical_or) ? left : evaluate(*e.children[1]);
    }
    case ExprKind::unary: return py_unary(e.op, evaluate(*e.children[0]));
    case ExprKind::binary: return evaluate_binary(e);
    case ExprKind::concat: return evaluate_concat(e);
    case ExprKind::compare: return evaluate_compare(e);
    case ExprKind::conditional: return evaluate_conditional(e);
    case ExprKind::attribute: return attribute(evaluate(*e.children[0]), e.attribute);
    case ExprKind::item: {
      const PyValue value = evaluate(*e.children[0]);
      return item(value, evaluate(*e.children[1]));
    }
    case ExprKind::slice: return evaluate_slice(e);
    case ExprKind::call: return evaluate_call(e);
    case ExprKind::filter: return evaluate_filter(e);
    case ExprKind::test: return evaluate_test(e);
    case ExprKind::ns_name: break;
  }
  fail(ErrorKind::internal, {.cause = "an assignment target was evaluated"});
}

PyValue TemplateRun::evaluate_name(const TemplateExpr& e) {
  if (const PyValue* found = scope_->find(e.name)) return *found;
  if (auto global = template_global(e.name)) return *global;
  return PyValue::undefined(py_quote(e.name) + " is undefined");
}

PyValue TemplateRun::evaluate_items(const TemplateExpr& e) {
  PyItems items;
  for (const ExprPtr& child : e.children) items.push_back(evaluate(*child));
  return e.kind == ExprKind::list ? PyValue::list(std::move(items)) : PyValue::tuple(std::move(items));
}

PyValue TemplateRun::evaluate_dict(const TemplateExpr& e) {
  PyDict dict;
  for (std::size_t i = 0; i + 1 < e.children.size(); i += 2) {
    PyValue key = evaluate(*e.children[i]);
    dict.set(work_, std::move(key), evaluate(*e.children[i + 1]));
  }
  return dict;
}

PyValue TemplateRun::evaluate_concat(const TemplateExpr& e) {
  std::string text;
  for (const ExprPtr& child : e.children) {
    text += py_str(work_, evaluate(*child));
    work_.require_fits(text.size());
  }
  work_.make(text.size());
  return text;
}

PyValue TemplateRun::evaluate_binary(const TemplateExpr& e) {
  const PyValue left = evaluate(*e.children[0]), right = evaluate(*e.children[1]);
  line_ = e.line;
  return py_binary(work_, e.op, left, right);
}

PyValue TemplateRun::evaluate_compare(const TemplateExpr& e) {
  PyValue left = evaluate(*e.children[0]);
  for (std::size_t i = 0; i < e.compares.size(); ++i) {
    PyValue right = evaluate(*e.children[i + 1]);
    line_ = e.line;
    if (!py_compare(work_, e.compares[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

PyValue TemplateRun::evaluate_conditional(const TemplateExpr& e) {
  if (py_truth(evaluate(*e.children[0]))) return evaluate(*e.children[1]);
  if (e.children.size() > 2) return evaluate(*e.children[2]);
  return PyValue::undefined("the inline if-expression on line " + std::to_string(e.line) +
                            " evaluated to false and no else section was defined.");
}

PyValue TemplateRun::evaluate_slice(const TemplateExpr& e) {
  const PyValue value = evaluate(*e.children[0]);
  PyItems bounds;
  for (std::size_t i = 1; i < 4; ++i) bounds.push_back(e.children[i] ? evaluate(*e.children[i]) : PyValue());
  line_ = e.line;
  return py_slice(work_, value, bounds);
}

PyArgs TemplateRun::evaluate_args(const CallExprs& call) {
  PyArgs args;
  for (const ExprPtr& e : call.positional) args.positional.push_back(evaluate(*e));
  for (const auto& [name, e] : call.keywords) args.keywords.emplace_back(name, evaluate(*e));
  if (call.star)
    for (PyValue& value : py_list(work_, evaluate(*call.star))) args.positional.push_back(std::move(value));
  if (!call.star_star) return args;
  const PyValue keywords = evaluate(*call.star_star);
  if (!keywords.is(PyKind::dict)) py_fail("argument after ** must be a mapping, not " + py_type_name(keywords));
  for (const auto& [key, value] : keywords.dict().entries) {
    if (!key.is_string()) py_fail("keywords must be strings");
    args.keywords.emplace_back(key.text(), value);
  }
  return args;
}

PyValue TemplateRun::evaluate_call(const TemplateExpr& e, const PyValue* caller) {
  const PyValue callee = evaluate(*e.children[0]);
  PyArgs args = evaluate_args(e.call);
  if (caller) args.keywords.emplace_back("caller", *caller);
  line_ = e.line;
  return call(callee, args);
}

PyValue TemplateRun::evaluate_filter(const TemplateExpr& e, const PyValue* block_text) {
  const TemplateExpr* inner = e.children[0].get();
  const bool chained = block_text && inner;
  const PyValue subject = chained ? evaluate_filter(*inner, block_text) : inner ? evaluate(*inner) : *block_text;
  const PyArgs args = evaluate_args(e.call);
  line_ = e.line;
  return apply_filter(e.name, subject, args);
}

bool TemplateRun::evaluate_test(const TemplateExpr& e) {
  const PyValue subject = evaluate(*e.children[0]);
  const PyArgs args = evaluate_args(e.call);
  line_ = e.line;
  return apply_test(e.name, subject, args);
}

PyValue TemplateRun::call(const PyValue& callee, const PyArgs& args) {
  if (callee.is(PyKind::undefined)) py_fail(callee.undefined_message());
  if (!callee.is(PyKind::object)) py_fail("'" + py_type_name(callee) + "' object is not callable");
  return callee.object().call(*this, args);
}

namespace {

/// As the messages of undefined values name a value's type.
std::string described(const PyValue& value) {
  return value.is(PyKind::none) ? "None" : py_type_name(value) + " object";
}

PyValue missing_attribute(const PyValue& value, std::string_view name) {
  return PyValue::undefined("'" + described(value) + "' has no attribute " + py_quote(name));
}

/// What Python's getattr gives, as far as the sandbox lets it through.
std::optional<PyValue> python_attribute(const PyValue& value, std::string_view name) {
  if (py_hidden_attribute(value, name))
    return PyValue::undefined("access to attribute " + py_quote(name) + " of '" + py_type_name(value) +
                              "' object is unsafe.");
  if (value.is(PyKind::object)) return value.object().attribute(name);
  return py_method(value, name);
}

}  // namespace

PyValue TemplateRun::attribute(const PyValue& value, const std::string& name) {
  if (value.is(PyKind::undefined)) py_fail(value.undefined_message());
  if (auto found = python_attribute(value, name)) return *found;
  if (value.is(PyKind::dict))
    if (const PyValue* found = value.dict().find_text(name)) return *found;
  return missing_attribute(value, name);
}

PyValue TemplateRun::item(const PyValue& value, const PyValue& key) {
  if (value.is(PyKind::undefined)) py_fail(value.undefined_message());
  if (value.is(PyKind::dict)) {
    const bool hashable = !key.is(PyKind::list) && !key.is(PyKind::dict);
    if (const PyValue* found = hashable ? value.dict().find(work_, key) : nullptr) return *found;
  } else if (const auto index = key.integer()) {
    if (auto found = py_at(value, *index)) return *found;
  }
  if (key.is_string()) {
    if (auto found = python_attribute(value, key.text())) return *found;
    return missing_attribute(value, key.text());
  }
  return PyValue::undefined(described(value) + " has no element " + py_repr(work_, key));
}

}  // namespace qtrain
