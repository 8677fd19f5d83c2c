#include "text/template/python/attributes.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "text/template/python/builtin.h"
#include "text/template/python/container_methods.h"
#include "text/template/python/error.h"
#include "text/template/python/repr.h"
#include "text/template/python/sequence.h"
#include "text/template/python/str_methods.h"

namespace qtrain {
namespace {

constexpr auto kDictChanges = std::to_array<std::string_view>({"clear", "pop", "popitem", "setdefault", "update"});

constexpr auto kListChanges =
    std::to_array<std::string_view>({"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});

std::span<const PyFunctionEntry> methods_of(const PyValue& self) {
  switch (self.kind()) {
    case PyKind::string: return str_methods();
    case PyKind::dict: return dict_methods();
    case PyKind::list: return list_methods();
    case PyKind::tuple: return tuple_methods();
    default: return {};
  }
}

/// The name of a value's type in messages about undefined values.
std::string described(const PyValue& value) {
  return value.is(PyKind::none) ? "None" : py_type_name(value) + " object";
}

PyValue missing_attribute(const PyValue& value, std::string_view name) {
  return PyValue::undefined("'" + described(value) + "' has no attribute " + py_quote(name));
}

/// Python's getattr, as far as the sandbox allows.
std::optional<PyValue> python_attribute(const PyValue& value, std::string_view name) {
  if (py_hidden_attribute(value, name))
    return PyValue::undefined("access to attribute " + py_quote(name) + " of '" + py_type_name(value) +
                              "' object is unsafe.");
  if (value.is(PyKind::object)) return value.object().attribute(name);
  return py_method(value, name);
}

}  // namespace

std::optional<PyValue> py_method(const PyValue& self, std::string_view name) {
  for (const PyFunctionEntry& m : methods_of(self))
    if (m.name == name) return std::make_shared<PyBuiltin>(m.name, m.function, self);
  return std::nullopt;
}

bool py_hidden_attribute(const PyValue& self, std::string_view name) {
  // Names with a single leading underscore mean nothing to Python and are looked up as keys.
  if (name.starts_with("__")) return !self.is(PyKind::dict) || !self.dict().find_text(name);
  if (self.is(PyKind::dict)) return std::find(kDictChanges.begin(), kDictChanges.end(), name) != kDictChanges.end();
  return self.is(PyKind::list) && std::find(kListChanges.begin(), kListChanges.end(), name) != kListChanges.end();
}

PyValue py_attribute(const PyValue& value, std::string_view name) {
  if (value.is(PyKind::undefined)) py_fail(value.undefined_message());
  if (auto found = python_attribute(value, name)) return *found;
  if (value.is(PyKind::dict))
    if (const PyValue* found = value.dict().find_text(name)) return *found;
  return missing_attribute(value, name);
}

PyValue py_item(PyWork& work, const PyValue& value, const PyValue& key) {
  if (value.is(PyKind::undefined)) py_fail(value.undefined_message());
  if (value.is(PyKind::dict)) {
    const bool hashable = !key.is(PyKind::list) && !key.is(PyKind::dict);
    if (const PyValue* found = hashable ? value.dict().find(work, key) : nullptr) return *found;
  } else if (const auto index = key.integer()) {
    if (value.is_string()) work.read(2 * value.text().size());
    if (auto found = py_at(value, *index)) return *found;
  }
  if (key.is_string()) {
    if (auto found = python_attribute(value, key.text())) return *found;
    return missing_attribute(value, key.text());
  }
  return PyValue::undefined(described(value) + " has no element " + py_repr(work, key));
}

}  // namespace qtrain
