#pragma once
#include <string>

#include "text/template/python/value.h"

namespace qtrain {

/// text % values, for a tuple, a dict or a single value.
std::string py_percent(PyWork& work, const std::string& text, const PyValue& values);

}  // namespace qtrain
