#pragma once
#include <string>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// repr(value) and str(value). Throw if the text is too long.
std::string py_repr(PyWork& work, const PyValue& value);
std::string py_str(PyWork& work, const PyValue& value);

/// repr of a string.
std::string py_quote(std::string_view text);
/// repr of a float.
std::string py_real_text(double value);
/// str of an int.
std::string py_int_text(PyInt value);

}  // namespace qtrain
