#pragma once
#include <span>

#include "text/template/python/builtin.h"

namespace qtrain {

// The methods of containers that templates may call, by name: those that change nothing.
std::span<const PyFunctionEntry> dict_methods();
std::span<const PyFunctionEntry> list_methods();
std::span<const PyFunctionEntry> tuple_methods();

}  // namespace qtrain
