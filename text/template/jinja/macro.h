#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/template/jinja/ast.h"
#include "text/template/jinja/state.h"
#include "text/template/python/value.h"

namespace qtrain {

/// A {% macro %}, or the caller of a {% call %} block.
class PyMacro : public PyObject {
 public:
  using Body = std::function<PyValue(const PyArgs&)>;
  PyMacro(const TemplateStmt& stmt, Body body) : stmt_(stmt), body_(std::move(body)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string repr(PyWork&) override;
  std::optional<PyValue> attribute(std::string_view name) override;
  bool callable() const override { return true; }
  PyValue call(PyWork&, const PyArgs& args) override;

 private:
  const TemplateStmt& stmt_;
  Body body_;  ///< renders the macro
};

/// Sets the parameters of a macro, and the special names that its body reads, in the state's scope. Throws for
/// arguments that the macro does not take.
void bind_parameters(TemplateState& state, const TemplateStmt& macro, const PyArgs& args);

}  // namespace qtrain
