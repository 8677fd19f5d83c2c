#pragma once
#include <cstdint>
#include <optional>

#include "text/template/python/value.h"

namespace qtrain {

enum class PyOp : std::uint8_t { add, sub, mul, div, floor_div, mod, pow, neg, pos };

// Binary operators on Python numbers. Throw for division by zero and integers beyond 127 bits.
PyValue py_int_binary(PyOp op, PyInt a, PyInt b);
PyValue py_real_binary(PyOp op, double a, double b);
/// The value of an int, bool or float.
std::optional<double> py_as_real(const PyValue& value);

}  // namespace qtrain
