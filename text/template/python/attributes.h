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

}  // namespace qtrain
