#pragma once
#include <optional>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// A method of a str, dict, list or tuple bound to its object; none if there is no such method.
std::optional<PyValue> py_method(const PyValue& self, std::string_view name);
/// Whether the sandbox hides the attribute: it begins with an underscore or would modify the object.
bool py_hidden_attribute(const PyValue& self, std::string_view name);

// value.name and value[key] as in Jinja's sandbox, where each falls back to the other; undefined if absent or hidden.
PyValue py_attribute(const PyValue& value, std::string_view name);
PyValue py_item(PyWork& work, const PyValue& value, const PyValue& key);

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
