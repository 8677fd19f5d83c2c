#include <utility>

#include "text/template/interpreter.h"
#include "text/template/py_objects.h"
#include "text/template/py_ops.h"
#include "text/template/py_text.h"

namespace qtrain {

/// Another scope for as long as this lives.
class TemplateRun::ScopeGuard {
 public:
  ScopeGuard(TemplateRun& run, ScopePtr scope) : run_(run), outer_(std::exchange(run.scope_, std::move(scope))) {}
  ~ScopeGuard() { run_.scope_ = std::move(outer_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  TemplateRun& run_;
  ScopePtr outer_;
};

/// Output goes to a text of its own for as long as this lives.
class TemplateRun::BufferGuard {
 public:
  explicit BufferGuard(TemplateRun& run) : run_(run), outer_(std::exchange(run.out_, &text)) {}
  ~BufferGuard() { run_.out_ = outer_; }
  BufferGuard(const BufferGuard&) = delete;
  BufferGuard& operator=(const BufferGuard&) = delete;
  std::string text;

 private:
  TemplateRun& run_;
  std::string* outer_;
};

TemplateRun::TemplateRun(const ParsedTemplate& parsed, std::time_t now)
    : parsed_(parsed), now_(now), scope_(std::make_shared<TemplateScope>(nullptr)), out_(&rendered_.text) {}

TemplateRun::~TemplateRun() {
  for (const ScopePtr& scope : captured_) scope->clear();
  for (const auto& weak : namespaces_)
    if (const auto ns = weak.lock()) ns->clear();
}

Rendered TemplateRun::render() {
  const ScopeGuard guard(*this, std::make_shared<TemplateScope>(scope_));
  execute(parsed_.body);
  return std::move(rendered_);
}

void TemplateRun::write(std::string_view text) {
  work_.require_fits(out_->size() + text.size());
  work_.make(text.size());
  *out_ += text;
}

TemplateRun::Flow TemplateRun::execute(const TemplateBody& body) {
  const PyWork::Level level(work_);
  for (const StmtPtr& s : body) {
    const Flow flow = execute(*s);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

TemplateRun::Flow TemplateRun::execute(const TemplateStmt& s) {
  work_.step();
  line_ = s.line;
  Flow flow = Flow::normal;
  switch (s.kind) {
    case StmtKind::text: write(s.text); break;
    case StmtKind::output: write(py_str(work_, evaluate(*s.value))); break;
    case StmtKind::set: assign(*s.target, evaluate(*s.value)); break;
    case StmtKind::set_block: execute_set_block(s, flow); break;
    case StmtKind::for_loop: execute_for(s); break;
    case StmtKind::branch: return execute_branch(s);
    case StmtKind::macro: scope_->set(s.name, make_macro(s)); break;
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

/// What a body writes, executed in a scope of its own.
std::string TemplateRun::capture(const TemplateBody& body, Flow& flow) {
  const ScopeGuard scope(*this, std::make_shared<TemplateScope>(scope_));
  BufferGuard buffer(*this);
  flow = execute(body);
  return std::move(buffer.text);
}

void TemplateRun::execute_set_block(const TemplateStmt& s, Flow& flow) {
  PyValue value = capture(s.body, flow);
  if (flow != Flow::normal) return;
  if (s.value) value = evaluate_filter(*s.value, &value);
  assign(*s.target, value);
}

void TemplateRun::execute_filter_block(const TemplateStmt& s, Flow& flow) {
  const PyValue text = capture(s.body, flow);
  if (flow == Flow::normal) write(py_str(work_, evaluate_filter(*s.value, &text)));
}

TemplateRun::Flow TemplateRun::execute_branch(const TemplateStmt& s) {
  for (const auto& [test, body] : s.branches)
    if (!test || py_truth(evaluate(*test))) return execute(body);
  return Flow::normal;
}

TemplateRun::Flow TemplateRun::execute_with(const TemplateStmt& s) {
  auto inner = std::make_shared<TemplateScope>(scope_);
  for (const auto& [target, value] : s.bindings) inner->set(target->name, evaluate(*value));
  const ScopeGuard scope(*this, inner);
  return execute(s.body);
}

TemplateRun::Flow TemplateRun::execute_block(const TemplateStmt& s) {
  const ScopeGuard scope(*this, std::make_shared<TemplateScope>(scope_));
  return execute(s.body);
}

void TemplateRun::assign(const TemplateExpr& target, const PyValue& value) {
  if (target.kind == ExprKind::tuple) return unpack(target, value);
  if (target.kind == ExprKind::name) return scope_->set(target.name, value);
  const PyValue* held = scope_->find(target.name);
  auto* ns = held ? held->as<PyNamespace>() : nullptr;
  if (!ns) py_fail("cannot assign attribute on non-namespace object");
  ns->set(target.attribute, value);
}

void TemplateRun::unpack(const TemplateExpr& target, const PyValue& value) {
  const PyItems items = py_list(work_, value);
  const std::size_t wanted = target.children.size();
  if (items.size() > wanted) py_fail("too many values to unpack (expected " + std::to_string(wanted) + ")");
  if (items.size() < wanted)
    py_fail("not enough values to unpack (expected " + std::to_string(wanted) + ", got " +
            std::to_string(items.size()) + ")");
  for (std::size_t i = 0; i < wanted; ++i) assign(*target.children[i], items[i]);
}

/// The items that pass the loop's own `if`, which sees the target but not the loop.
PyNext TemplateRun::filtered(const TemplateStmt& s, const PyValue& iterable) {
  return [this, &s, outer = scope_, next = py_iterate(work_, iterable)]() -> std::optional<PyValue> {
    while (auto item = next()) {
      const ScopeGuard scope(*this, std::make_shared<TemplateScope>(outer));
      assign(*s.target, *item);
      if (py_truth(evaluate(*s.test))) return item;
    }
    return std::nullopt;
  };
}

void TemplateRun::execute_for(const TemplateStmt& s) {
  const PyValue iterable = evaluate(*s.value);
  if (s.recursive) return write(render_loop(s, scope_, iterable, 0).text());
  const bool all = !s.test;
  PyNext next = all ? py_iterate(work_, iterable) : filtered(s, iterable);
  auto loop = std::make_shared<PyLoop>(all ? iterable : make_generator({}), std::move(next), 0);
  execute_loop(s, loop);
}

PyValue TemplateRun::render_loop(const TemplateStmt& s, const ScopePtr& scope, const PyValue& iterable, int depth) {
  const ScopeGuard guard(*this, scope);
  BufferGuard buffer(*this);
  const bool all = !s.test;
  PyNext next = all ? py_iterate(work_, iterable) : filtered(s, iterable);
  auto loop = std::make_shared<PyLoop>(all ? iterable : make_generator({}), std::move(next), depth);
  loop->recursive = &s;
  loop->scope = scope;
  execute_loop(s, loop);
  return std::move(buffer.text);
}

void TemplateRun::execute_loop(const TemplateStmt& s, const std::shared_ptr<PyLoop>& loop) {
  bool finished_one = false;  // `else` runs unless the body reached its end once
  const ScopePtr outer = scope_;
  ScopePtr inner;
  while (auto item = loop->advance()) {
    if (inner && inner.use_count() == 1)
      inner->clear();
    else
      inner = std::make_shared<TemplateScope>(outer);
    ScopeGuard scope(*this, inner);
    inner->set("loop", loop);
    assign(*s.target, *item);
    const Flow flow = execute(s.body);
    if (flow == Flow::break_loop) break;
    finished_one |= flow == Flow::normal;
  }
  if (finished_one || s.otherwise.empty()) return;
  const ScopeGuard scope(*this, std::make_shared<TemplateScope>(outer));
  execute(s.otherwise);
}

/// Like a macro without parameters that is called where it stands.
void TemplateRun::execute_generation(const TemplateStmt& s) {
  Flow flow = Flow::normal;
  const std::string text = capture(s.body, flow);
  const std::size_t begin = rendered_.text.size();
  if (out_ != &rendered_.text) rendered_.ranges_known = false;
  rendered_.generated.emplace_back(begin, begin + text.size());
  write(text);
}

}  // namespace qtrain
