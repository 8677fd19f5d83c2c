#pragma once
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/py_value.h"
#include "text/template/rendered.h"

namespace qtrain {

/// The variables of a block, inside those of the block around it.
class TemplateScope {
 public:
  explicit TemplateScope(std::shared_ptr<TemplateScope> parent) : parent_(std::move(parent)) {}
  /// Here or further out; null if nowhere.
  const PyValue* find(std::string_view name) const;
  void set(std::string_view name, PyValue value);
  void clear() { variables_.clear(); }

 private:
  std::vector<std::pair<std::string, PyValue>> variables_;
  std::shared_ptr<TemplateScope> parent_;
};
using ScopePtr = std::shared_ptr<TemplateScope>;

class PyMacro;
class PyLoop;
class PyNamespace;

/// One rendering of a template: evaluates expressions and executes statements.
class TemplateRun {
 public:
  TemplateRun(const ParsedTemplate& parsed, std::time_t now);
  ~TemplateRun();
  TemplateRun(const TemplateRun&) = delete;
  TemplateRun& operator=(const TemplateRun&) = delete;

  /// A variable that the template sees.
  void define(std::string_view name, PyValue value) { scope_->set(name, std::move(value)); }
  Rendered render();
  /// Line of what is being executed, for messages.
  int line() const { return line_; }

  PyWork& work() { return work_; }
  std::time_t now() const { return now_; }

  // What filters, tests and methods need.
  PyValue call(const PyValue& callee, const PyArgs& args);
  PyValue apply_filter(const std::string& name, const PyValue& subject, const PyArgs& args);
  bool apply_test(const std::string& name, const PyValue& subject, const PyArgs& args);
  /// value.name and value[key] as the sandbox has them: undefined if absent, or not to be touched.
  PyValue attribute(const PyValue& value, const std::string& name);
  PyValue item(const PyValue& value, const PyValue& key);
  PyValue call_macro(const PyMacro& macro, const PyArgs& args);
  PyValue render_loop(const TemplateStmt& loop, const ScopePtr& scope, const PyValue& iterable, int depth);
  /// Namespaces may hold themselves; those told here are emptied in the end.
  void watch(std::weak_ptr<PyNamespace> made) { namespaces_.push_back(std::move(made)); }

 private:
  enum class Flow : std::uint8_t { normal, break_loop, continue_loop };
  class ScopeGuard;
  class BufferGuard;

  PyValue evaluate(const TemplateExpr& e);
  PyValue evaluate_name(const TemplateExpr& e);
  PyValue evaluate_items(const TemplateExpr& e);
  PyValue evaluate_dict(const TemplateExpr& e);
  PyValue evaluate_concat(const TemplateExpr& e);
  PyValue evaluate_binary(const TemplateExpr& e);
  PyValue evaluate_compare(const TemplateExpr& e);
  PyValue evaluate_conditional(const TemplateExpr& e);
  PyValue evaluate_slice(const TemplateExpr& e);
  PyValue evaluate_call(const TemplateExpr& e, const PyValue* caller = nullptr);
  PyValue evaluate_filter(const TemplateExpr& e, const PyValue* block_text = nullptr);
  bool evaluate_test(const TemplateExpr& e);
  PyArgs evaluate_args(const CallExprs& call);

  Flow execute(const TemplateBody& body);
  Flow execute(const TemplateStmt& s);
  void write(std::string_view text);
  std::string capture(const TemplateBody& body, Flow& flow);
  void execute_set_block(const TemplateStmt& s, Flow& flow);
  void execute_filter_block(const TemplateStmt& s, Flow& flow);
  Flow execute_branch(const TemplateStmt& s);
  Flow execute_with(const TemplateStmt& s);
  Flow execute_block(const TemplateStmt& s);
  void execute_for(const TemplateStmt& s);
  void execute_loop(const TemplateStmt& s, const std::shared_ptr<PyLoop>& loop);
  void execute_call_block(const TemplateStmt& s);
  void execute_generation(const TemplateStmt& s);
  void assign(const TemplateExpr& target, const PyValue& value);
  void unpack(const TemplateExpr& target, const PyValue& value);
  std::shared_ptr<PyMacro> make_macro(const TemplateStmt& s);
  void bind_parameters(const PyMacro& macro, const PyArgs& args);
  PyNext filtered(const TemplateStmt& s, const PyValue& iterable);

  const ParsedTemplate& parsed_;
  std::time_t now_;
  PyWork work_;
  ScopePtr scope_;
  Rendered rendered_;
  std::string* out_;
  int line_ = 1;
  // Macros hold their scope and scopes their macros: these are emptied at the end.
  std::vector<ScopePtr> captured_;
  std::vector<std::weak_ptr<PyNamespace>> namespaces_;
};

}  // namespace qtrain
