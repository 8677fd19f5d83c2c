#pragma once
#include <cstdint>
#include <optional>

#include "text/template/python/value.h"

namespace qtrain {

enum class PyOp : std::uint8_t { add, sub, mul, div, floor_div, mod, pow, neg, pos };

// The binary operators of Python's numbers. Errors: division by zero, integers beyond 127 bits.
PyValue py_int_binary(PyOp op, PyInt a, PyInt b);
PyValue py_real_binary(PyOp op, double a, double b);
/// The value of an int, bool or float.
std::optional<double> py_as_real(const PyValue& value);

}  // namespace qtrain
