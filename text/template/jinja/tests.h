#pragma once
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

// Tests of Jinja: what stands behind `is` in a template.

/// subject is name(args). Errors: no such test, and its own.
bool apply_test(PyWork& work, std::string_view name, const PyValue& subject, const PyArgs& args);

}  // namespace qtrain
