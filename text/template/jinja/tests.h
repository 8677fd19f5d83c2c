#pragma once
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

// Jinja's tests: `subject is name(args)`.

/// Throws for an unknown test and for the test's own errors.
bool apply_test(PyWork& work, std::string_view name, const PyValue& subject, const PyArgs& args);

}  // namespace qtrain
