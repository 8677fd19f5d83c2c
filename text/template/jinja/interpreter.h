#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/jinja/ast.h"
#include "text/template/jinja/objects.h"
#include "text/template/jinja/state.h"
#include "text/template/python/value.h"
#include "text/template/rendered.h"

namespace qtrain {

/// One rendering of a template.
class TemplateRun {
 public:
  /// `now`: the time for strftime_now.
  TemplateRun(const ParsedTemplate& parsed, std::time_t now, PyLimits limits = {});
  ~TemplateRun();
  TemplateRun(const TemplateRun&) = delete;
  TemplateRun& operator=(const TemplateRun&) = delete;

  /// Defines a variable for the template.
  void define(std::string_view name, PyValue value) { state_.scope->set(name, std::move(value)); }
  Rendered render();
  /// The line being executed, for messages.
  int line() const { return state_.line; }

 private:
  enum class Flow : std::uint8_t { normal, break_loop, continue_loop };

  void write(std::string_view text);
  Flow execute(const TemplateBody& body);
  Flow execute(const TemplateStmt& s);
  std::string capture(const TemplateBody& body, Flow& flow);
  void execute_set_block(const TemplateStmt& s, Flow& flow);
  void execute_filter_block(const TemplateStmt& s, Flow& flow);
  Flow execute_branch(const TemplateStmt& s);
  Flow execute_with(const TemplateStmt& s);
  Flow execute_block(const TemplateStmt& s);
  void execute_generation(const TemplateStmt& s);

  void assign(const TemplateExpr& target, const PyValue& value);
  void unpack(const TemplateExpr& target, const PyValue& value);

  void execute_for(const TemplateStmt& s);
  PyNext filtered(const TemplateStmt& s, const PyValue& iterable);
  std::shared_ptr<PyLoop> make_loop(const TemplateStmt& s, const PyValue& iterable, int depth0);
  std::string render_loop(const TemplateStmt& s, const PyValue& iterable, int depth0);
  void execute_loop(const TemplateStmt& s, const std::shared_ptr<PyLoop>& loop);

  std::shared_ptr<PyMacro> make_macro(const TemplateStmt& s);
  std::string call_macro(const TemplateStmt& s, const ScopePtr& scope, const PyArgs& args);
  void execute_call_block(const TemplateStmt& s);

  const ParsedTemplate& parsed_;
  TemplateState state_;
  Rendered rendered_;
  std::string* out_;
  std::vector<ScopePtr> captured_;  // macros and their scopes refer to each other: these are emptied at the end
};

}  // namespace qtrain
