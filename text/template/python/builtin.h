#pragma once
#include <string>
#include <string_view>
#include <utility>

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

}  // namespace qtrain
