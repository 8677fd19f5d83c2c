#pragma once
#include <span>

#include "text/template/python/functions.h"

namespace qtrain {

// Container methods that templates may call, by name: those without side effects.
std::span<const PyFunctionEntry> dict_methods();
std::span<const PyFunctionEntry> list_methods();
std::span<const PyFunctionEntry> tuple_methods();

/// str methods that templates may call, by name.
std::span<const PyFunctionEntry> str_methods();

}  // namespace qtrain
