#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/python/value.h"

namespace qtrain {

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
