#pragma once
#include <cstdint>
#include <functional>

#include "text/template/python/value.h"

namespace qtrain {

using PyGetter = std::function<PyValue(const PyValue&)>;
enum class Folding : std::uint8_t { none, ignore_case };
/// value -> value.a.b for the attribute "a.b" (numeric parts are indices); the value itself for None. `otherwise`
/// replaces undefined values if given and not None.
PyGetter attribute_getter(PyWork& work, const PyValue& attribute, Folding folding, const PyValue* otherwise = nullptr);

}  // namespace qtrain
