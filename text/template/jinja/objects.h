#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/jinja/ast.h"
#include "text/template/jinja/state.h"
#include "text/template/python/value.h"

namespace qtrain {

/// Result of namespace(): an object whose attributes {% set %} can change.
class PyNamespace : public PyObject {
 public:
  std::string_view type_name() const override { return "TemplateNamespace"; }
  std::string repr(PyWork& work) override;
  std::optional<PyValue> attribute(std::string_view name) override;
  /// Throws for names that begin with an underscore.
  void set(std::string_view name, PyValue value);
  void clear();
  void take_apart(PyItems& into) override;
  ~PyNamespace() override { clear(); }

 private:
  std::vector<std::pair<std::string, PyValue>> attributes_;
};

/// The variable `loop`.
class PyLoop : public PyObject {
 public:
  PyLoop(PyValue iterable, PyNext next, int depth0)
      : PyObject(iterable.chain() + 1), iterable_(std::move(iterable)), next_(std::move(next)), depth0_(depth0) {}
  /// Advances to the next item; none at the end.
  std::optional<PyValue> advance();
  std::string_view type_name() const override { return "LoopContext"; }
  std::string repr(PyWork&) override;
  std::optional<PyValue> attribute(std::string_view name) override;
  std::optional<std::size_t> length() override;
  bool callable() const override { return true; }
  PyValue call(PyWork&, const PyArgs& args) override;
  /// loop.cycle(...), loop.changed(...)
  PyValue cycle(const PyArgs& args) const;
  bool changed(PyWork& work, const PyArgs& args);

  /// Renders the loop for another iterable, one level deeper; empty unless the loop is recursive.
  std::function<PyValue(const PyValue& iterable, int depth0)> recursion;

 private:
  const std::optional<PyValue>& peek();
  PyValue iterable_;
  PyNext next_;
  int depth0_;
  PyInt index0_ = -1;
  std::optional<std::size_t> length_;
  std::optional<PyValue> after_, current_, before_, last_changed_;
  bool peeked_ = false;
};

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
