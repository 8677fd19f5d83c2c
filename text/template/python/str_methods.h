#pragma once
#include <span>

#include "text/template/python/builtin.h"

namespace qtrain {

/// str methods that templates may call, by name.
std::span<const PyFunctionEntry> str_methods();

}  // namespace qtrain
