#pragma once
#include <cstdint>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

enum class PyCompare : std::uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

/// a op b. TypeErrors as Python's.
bool py_compare(PyWork& work, PyCompare op, const PyValue& a, const PyValue& b);
/// a == b; false of types that do not compare.
bool py_equal(PyWork& work, const PyValue& a, const PyValue& b);
/// a < b; TypeErrors as Python's, naming `op`.
bool py_less(PyWork& work, const PyValue& a, const PyValue& b, std::string_view op = "<");

}  // namespace qtrain
