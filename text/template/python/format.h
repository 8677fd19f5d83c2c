#pragma once
#include <string>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// format(value, spec)
std::string py_format(PyWork& work, const PyValue& value, std::string_view spec);
/// text.format(*args, **kwargs)
PyValue py_format_text(PyWork& work, std::string_view text, const PyArgs& args);

/// text % values, for a tuple, a dict or a single value.
std::string py_percent(PyWork& work, const std::string& text, const PyValue& values);

}  // namespace qtrain
