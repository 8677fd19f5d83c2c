#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/interpreter.h"
#include "text/template/py_value.h"

namespace qtrain {

/// A function of ours, or a method bound to its object.
using PyFunction = PyValue (*)(TemplateRun& run, const PyValue& self, const PyArgs& args);
class PyBuiltin : public PyObject {
 public:
  PyBuiltin(std::string_view name, PyFunction function, PyValue self = {})
      : name_(name), function_(function), self_(std::move(self)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  std::string repr(PyWork&) override { return "<built-in function " + std::string(name_) + ">"; }
  bool callable() const override { return true; }
  PyValue call(TemplateRun& run, const PyArgs& args) override { return function_(run, self_, args); }

 private:
  std::string_view name_;
  PyFunction function_;
  PyValue self_;
};

/// What `map`, `select` and others return: it yields its items once.
class PyGenerator : public PyObject {
 public:
  PyGenerator(PyNext next, std::string_view type = "generator") : next_(std::move(next)), type_(type) {}
  std::string_view type_name() const override { return type_; }
  PyNext iterate(PyWork&) override {
    return [self = shared_from_this(), this] { return next_(); };
  }

 private:
  PyNext next_;
  std::string_view type_;
};
PyValue make_generator(PyNext next, std::string_view type = "generator");

class PyRange : public PyObject {
 public:
  PyRange(PyInt start, PyInt stop, PyInt step);
  std::string_view type_name() const override { return "range"; }
  std::string repr(PyWork&) override;
  PyNext iterate(PyWork&) override;
  std::optional<std::size_t> length() override { return count_; }
  std::optional<PyValue> item(std::size_t index) override { return start_ + static_cast<PyInt>(index) * step_; }

 private:
  PyInt start_, stop_, step_;
  std::size_t count_;
};

/// dict.items(), keys(), values()
class PyView : public PyObject {
 public:
  enum class Part : std::uint8_t { items, keys, values };
  PyView(PyValue dict, Part part) : dict_(std::move(dict)), part_(part) {}
  std::string_view type_name() const override;
  std::string repr(PyWork& work) override;
  PyNext iterate(PyWork&) override;
  std::optional<std::size_t> length() override { return dict_.dict().entries.size(); }

 private:
  PyValue at(std::size_t index) const;
  PyValue dict_;
  Part part_;
};

class PyNamespace : public PyObject {
 public:
  std::string_view type_name() const override { return "TemplateNamespace"; }
  std::string repr(PyWork& work) override;
  std::optional<PyValue> attribute(std::string_view name) override;
  /// Names that begin with an underscore are refused.
  void set(std::string_view name, PyValue value);
  void clear() { attributes_.clear(); }

 private:
  std::vector<std::pair<std::string, PyValue>> attributes_;
};

class PyMacro : public PyObject {
 public:
  PyMacro(const TemplateStmt& stmt, ScopePtr scope) : stmt(stmt), scope(std::move(scope)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string repr(PyWork&) override;
  std::optional<PyValue> attribute(std::string_view name) override;
  bool callable() const override { return true; }
  PyValue call(TemplateRun& run, const PyArgs& args) override { return run.call_macro(*this, args); }

  const TemplateStmt& stmt;
  ScopePtr scope;  ///< where it was defined
};

/// The variable `loop`.
class PyLoop : public PyObject {
 public:
  PyLoop(PyValue iterable, PyNext next, int depth0)
      : iterable_(std::move(iterable)), next_(std::move(next)), depth0_(depth0) {}
  /// Moves on; none at the end.
  std::optional<PyValue> advance();
  std::string_view type_name() const override { return "LoopContext"; }
  std::string repr(PyWork&) override;
  std::optional<PyValue> attribute(std::string_view name) override;
  std::optional<std::size_t> length() override;
  bool callable() const override { return true; }
  PyValue call(TemplateRun& run, const PyArgs& args) override;
  PyValue cycle(const PyArgs& args) const;
  bool changed(PyWork& work, const PyArgs& args);

  const TemplateStmt* recursive = nullptr;  ///< the statement, if the loop may call itself
  ScopePtr scope;                           ///< around the loop

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

class PyJoiner : public PyObject {
 public:
  explicit PyJoiner(PyValue separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  PyValue call(TemplateRun&, const PyArgs&) override { return std::exchange(used_, true) ? separator_ : PyValue(""); }

 private:
  PyValue separator_;
  bool used_ = false;
};

/// A method of a str, dict, list or tuple bound to its object; none if there is no such method.
std::optional<PyValue> py_method(const PyValue& self, std::string_view name);
/// Whether the sandbox hides the attribute: it begins with an underscore or would change the object.
bool py_hidden_attribute(const PyValue& self, std::string_view name);

/// range, namespace, dict, joiner, raise_exception, strftime_now; none for another name.
std::optional<PyValue> template_global(std::string_view name);

}  // namespace qtrain
