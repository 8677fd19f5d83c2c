#pragma once
#include <cstdint>
#include <string_view>

#include "text/template/python/numbers.h"
#include "text/template/python/value.h"

namespace qtrain {

// Python's operators on values of any type. Throw the errors that Python raises.
PyValue py_binary(PyWork& work, PyOp op, const PyValue& a, const PyValue& b);
PyValue py_unary(PyOp op, const PyValue& a);

enum class PyCompare : std::uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

/// a op b. Throws TypeErrors like Python.
bool py_compare(PyWork& work, PyCompare op, const PyValue& a, const PyValue& b);
/// a == b; false for types that are not comparable.
bool py_equal(PyWork& work, const PyValue& a, const PyValue& b);
/// a < b. Throws TypeErrors like Python, naming `op`.
bool py_less(PyWork& work, const PyValue& a, const PyValue& b, std::string_view op = "<");

}  // namespace qtrain
