#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

enum class PyOp : std::uint8_t { add, sub, mul, div, floor_div, mod, pow, neg, pos };

// Binary operators on Python numbers. Throw for division by zero and integers beyond 127 bits.
PyValue py_int_binary(PyOp op, PyInt a, PyInt b);
PyValue py_real_binary(PyOp op, double a, double b);
/// The value of an int, bool or float.
std::optional<double> py_as_real(const PyValue& value);

/// int(text, base) and float(text); none if Python raises a ValueError.
std::optional<PyInt> py_parse_int(std::string_view text, int base = 10);
std::optional<double> py_parse_real(std::string_view text);

/// The value of a digit up to z (35), in either case; larger for other characters.
int digit_value(char c);
enum class Leading : std::uint8_t { digit, underscore };
/// Length of a run of digits in this base, with single underscores between them and optionally one in front.
std::size_t digits_length(std::string_view text, int base, Leading leading = Leading::digit);
std::string without_underscores(std::string_view text);

}  // namespace qtrain
