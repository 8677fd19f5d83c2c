#pragma once
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// Whether there is such a filter.
bool is_filter_name(std::string_view name);
/// subject | name(args). Errors: no such filter, and its own.
PyValue apply_filter(PyWork& work, std::string_view name, const PyValue& subject, const PyArgs& args);

}  // namespace qtrain
