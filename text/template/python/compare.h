#pragma once
#include <cstdint>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

enum class PyCompare : std::uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

/// a op b. Throws TypeErrors like Python.
bool py_compare(PyWork& work, PyCompare op, const PyValue& a, const PyValue& b);
/// a == b; false for types that are not comparable.
bool py_equal(PyWork& work, const PyValue& a, const PyValue& b);
/// a < b. Throws TypeErrors like Python, naming `op`.
bool py_less(PyWork& work, const PyValue& a, const PyValue& b, std::string_view op = "<");

}  // namespace qtrain
