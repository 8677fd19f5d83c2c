#include "text/template/jinja/interpreter.h"

#include "text/template/jinja/evaluator.h"
#include "text/template/jinja/objects.h"
#include "text/template/python/access.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

/// Redirects output to a separate text for the object's lifetime.
class BufferGuard {
 public:
  explicit BufferGuard(std::string*& place) : place_(place), outer_(std::exchange(place, &text)) {}
  ~BufferGuard() { place_ = outer_; }
  BufferGuard(const BufferGuard&) = delete;
  BufferGuard& operator=(const BufferGuard&) = delete;
  std::string text;

 private:
  std::string*& place_;
  std::string* outer_;
};

}  // namespace

TemplateRun::TemplateRun(const ParsedTemplate& parsed, std::time_t now, PyLimits limits)
    : parsed_(parsed), state_(now, limits), out_(&rendered_.text) {}

TemplateRun::~TemplateRun() {
  for (const ScopePtr& scope : captured_) scope->clear();
}

Rendered TemplateRun::render() {
  const ScopeGuard guard(state_.scope, std::make_shared<TemplateScope>(state_.scope));
  execute(parsed_.body);
  return std::move(rendered_);
}

void TemplateRun::write(std::string_view text) {
  state_.work.require_fits(out_->size() + text.size());
  state_.work.make(text.size());
  *out_ += text;
}

TemplateRun::Flow TemplateRun::execute(const TemplateBody& body) {
  const PyWork::Level level(state_.work);
  for (const StmtPtr& s : body) {
    const Flow flow = execute(*s);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

TemplateRun::Flow TemplateRun::execute(const TemplateStmt& s) {
  state_.work.step();
  state_.line = s.line;
  Flow flow = Flow::normal;
  switch (s.kind) {
    case StmtKind::text: write(s.text); break;
    case StmtKind::output: write(py_str(state_.work, evaluate(state_, *s.value))); break;
    case StmtKind::set: assign(*s.target, evaluate(state_, *s.value)); break;
    case StmtKind::set_block: execute_set_block(s, flow); break;
    case StmtKind::for_loop: execute_for(s); break;
    case StmtKind::branch: return execute_branch(s);
    case StmtKind::macro: state_.scope->set(s.name, make_macro(s)); break;
    case StmtKind::call_block: execute_call_block(s); break;
    case StmtKind::filter_block: execute_filter_block(s, flow); break;
    case StmtKind::with: return execute_with(s);
    case StmtKind::block: return execute_block(s);
    case StmtKind::generation: execute_generation(s); break;
    case StmtKind::loop_break: return Flow::break_loop;
    case StmtKind::loop_continue: return Flow::continue_loop;
  }
  return flow;
}

/// The output of a body executed in a new scope.
std::string TemplateRun::capture(const TemplateBody& body, Flow& flow) {
  const ScopeGuard scope(state_.scope, std::make_shared<TemplateScope>(state_.scope));
  BufferGuard buffer(out_);
  flow = execute(body);
  return std::move(buffer.text);
}

void TemplateRun::execute_set_block(const TemplateStmt& s, Flow& flow) {
  PyValue value = capture(s.body, flow);
  if (flow != Flow::normal) return;
  if (s.value) value = evaluate_filter(state_, *s.value, &value);
  assign(*s.target, value);
}

void TemplateRun::execute_filter_block(const TemplateStmt& s, Flow& flow) {
  const PyValue text = capture(s.body, flow);
  if (flow == Flow::normal) write(py_str(state_.work, evaluate_filter(state_, *s.value, &text)));
}

TemplateRun::Flow TemplateRun::execute_branch(const TemplateStmt& s) {
  for (const auto& [test, body] : s.branches)
    if (!test || py_truth(evaluate(state_, *test))) return execute(body);
  return Flow::normal;
}

TemplateRun::Flow TemplateRun::execute_with(const TemplateStmt& s) {
  auto inner = std::make_shared<TemplateScope>(state_.scope);
  for (const auto& [target, value] : s.bindings) inner->set(target->name, evaluate(state_, *value));
  const ScopeGuard scope(state_.scope, inner);
  return execute(s.body);
}

TemplateRun::Flow TemplateRun::execute_block(const TemplateStmt& s) {
  const ScopeGuard scope(state_.scope, std::make_shared<TemplateScope>(state_.scope));
  return execute(s.body);
}

/// Works like a macro without parameters that is called in place.
void TemplateRun::execute_generation(const TemplateStmt& s) {
  Flow flow = Flow::normal;
  const std::string text = capture(s.body, flow);
  const std::size_t begin = rendered_.text.size();
  if (out_ != &rendered_.text) rendered_.ranges_known = false;
  rendered_.generated.emplace_back(begin, begin + text.size());
  write(text);
}

void TemplateRun::assign(const TemplateExpr& target, const PyValue& value) {
  if (target.kind == ExprKind::tuple) return unpack(target, value);
  if (target.kind == ExprKind::name) return state_.scope->set(target.name, value);
  const PyValue* held = state_.scope->find(target.name);
  auto* ns = held ? held->as<PyNamespace>() : nullptr;
  if (!ns) py_fail("cannot assign attribute on non-namespace object");
  ns->set(target.attribute, value);
}

void TemplateRun::unpack(const TemplateExpr& target, const PyValue& value) {
  const PyItems items = py_list(state_.work, value);
  const std::size_t wanted = target.children.size();
  if (items.size() > wanted) py_fail("too many values to unpack (expected " + std::to_string(wanted) + ")");
  if (items.size() < wanted)
    py_fail("not enough values to unpack (expected " + std::to_string(wanted) + ", got " +
            std::to_string(items.size()) + ")");
  for (std::size_t i = 0; i < wanted; ++i) assign(*target.children[i], items[i]);
}

/// The items that pass the loop's own `if`, which sees the target but not `loop`.
PyNext TemplateRun::filtered(const TemplateStmt& s, const PyValue& iterable) {
  return [this, &s, outer = state_.scope, next = py_iterate(state_.work, iterable)]() -> std::optional<PyValue> {
    while (auto item = next()) {
      const ScopeGuard scope(state_.scope, std::make_shared<TemplateScope>(outer));
      assign(*s.target, *item);
      if (py_truth(evaluate(state_, *s.test))) return item;
    }
    return std::nullopt;
  };
}

void TemplateRun::execute_for(const TemplateStmt& s) {
  const PyValue iterable = evaluate(state_, *s.value);
  if (s.recursive) return write(render_loop(s, iterable, 0));
  execute_loop(s, make_loop(s, iterable, 0));
}

std::shared_ptr<PyLoop> TemplateRun::make_loop(const TemplateStmt& s, const PyValue& iterable, int depth0) {
  const bool all = !s.test;
  PyNext next = all ? py_iterate(state_.work, iterable) : filtered(s, iterable);
  auto loop = std::make_shared<PyLoop>(all ? iterable : make_generator({}, iterable), std::move(next), depth0);
  if (s.recursive)
    loop->recursion = [this, &s, scope = state_.scope](const PyValue& inner, int depth) {
      const ScopeGuard guard(state_.scope, scope);
      return render_loop(s, inner, depth);
    };
  return loop;
}

std::string TemplateRun::render_loop(const TemplateStmt& s, const PyValue& iterable, int depth0) {
  BufferGuard buffer(out_);
  execute_loop(s, make_loop(s, iterable, depth0));
  return std::move(buffer.text);
}

void TemplateRun::execute_loop(const TemplateStmt& s, const std::shared_ptr<PyLoop>& loop) {
  bool finished_one = false;  // `else` runs unless the body reached its end once
  const ScopePtr outer = state_.scope;
  ScopePtr inner;
  while (auto item = loop->advance()) {
    if (inner && inner.use_count() == 1)
      inner->clear();
    else
      inner = std::make_shared<TemplateScope>(outer);
    ScopeGuard scope(state_.scope, inner);
    inner->set("loop", loop);
    assign(*s.target, *item);
    const Flow flow = execute(s.body);
    if (flow == Flow::break_loop) break;
    finished_one |= flow == Flow::normal;
  }
  if (finished_one || s.otherwise.empty()) return;
  const ScopeGuard scope(state_.scope, std::make_shared<TemplateScope>(outer));
  execute(s.otherwise);
}

std::shared_ptr<PyMacro> TemplateRun::make_macro(const TemplateStmt& s) {
  captured_.push_back(state_.scope);
  return std::make_shared<PyMacro>(
      s, [this, &s, scope = state_.scope](const PyArgs& args) { return call_macro(s, scope, args); });
}

std::string TemplateRun::call_macro(const TemplateStmt& s, const ScopePtr& scope, const PyArgs& args) {
  const PyWork::Level level(state_.work);
  const int line = state_.line;
  const ScopeGuard guard(state_.scope, std::make_shared<TemplateScope>(scope));
  BufferGuard buffer(out_);
  bind_parameters(state_, s, args);
  execute(s.body);
  state_.line = line;
  return std::move(buffer.text);
}

void TemplateRun::execute_call_block(const TemplateStmt& s) {
  const PyValue caller(make_macro(s));
  write(py_str(state_.work, evaluate_call(state_, *s.value, &caller)));
}

}  // namespace qtrain
