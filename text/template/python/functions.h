#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/python/value.h"

namespace qtrain {

/// A built-in function; `self` is the object of a method, or other data of the function.
using PyFunction = PyValue (*)(PyWork& work, const PyValue& self, const PyArgs& args);
struct PyFunctionEntry {
  std::string_view name;
  PyFunction function;
};

/// A built-in function as a value, bound to its subject.
class PyBuiltin : public PyObject {
 public:
  PyBuiltin(std::string_view name, PyFunction function, PyValue self = {})
      : PyObject(self.chain()), name_(name), function_(function), self_(std::move(self)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  std::string repr(PyWork&) override { return "<built-in function " + std::string(name_) + ">"; }
  bool callable() const override { return true; }
  PyValue call(PyWork& work, const PyArgs& args) override { return function_(work, self_, args); }
  void take_apart(PyItems& into) override { into.push_back(std::move(self_)); }

 private:
  std::string_view name_;
  PyFunction function_;
  PyValue self_;
};

/// Binds the arguments of a call to parameters like Python.
class PyBound {
 public:
  /// `required`: how many of the parameters must be given. Throws for too many arguments, an unknown or repeated
  /// keyword, or a missing required argument.
  PyBound(std::string_view function, const PyArgs& args, std::initializer_list<std::string_view> parameters,
          std::size_t required = 0);

  /// Null if not given.
  const PyValue* operator[](std::size_t i) const { return values_[i]; }
  PyValue value(std::size_t i, PyValue otherwise = {}) const { return values_[i] ? *values_[i] : otherwise; }
  bool truth(std::size_t i, bool otherwise) const { return values_[i] ? py_truth(*values_[i]) : otherwise; }
  /// Throw a TypeError unless given as an int or str.
  PyInt integer(std::size_t i, PyInt otherwise = 0) const;
  const std::string& text(std::size_t i) const;
  /// None for a missing argument or Python's None.
  std::optional<std::string_view> optional_text(std::size_t i) const;
  std::optional<PyInt> optional_integer(std::size_t i) const;

 private:
  std::string function_;
  std::vector<const PyValue*> values_;
};

/// Clamps an int to 64 bits, for use as a limit or index.
std::int64_t py_clamp(PyInt value);

}  // namespace qtrain
