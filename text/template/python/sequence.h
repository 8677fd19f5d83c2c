#pragma once
#include <optional>

#include "text/template/python/value.h"

namespace qtrain {

/// Iterates over characters, items or keys.
PyNext py_iterate(PyWork& work, const PyValue& value);
bool py_is_iterable(const PyValue& value);
PyItems py_list(PyWork& work, const PyValue& value);
/// len(value); none if it has no length.
std::optional<std::size_t> py_length(const PyValue& value);
/// Item of a str, list, tuple or range; none if out of range or not indexable by integers. Negative indices count from
/// the end.
std::optional<PyValue> py_at(const PyValue& value, PyInt index);
/// value[start:stop:step]; null or None bounds are open.
PyValue py_slice(PyWork& work, const PyValue& value, const PyItems& bounds);

}  // namespace qtrain
