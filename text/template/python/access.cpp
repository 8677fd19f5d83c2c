#include "text/template/python/access.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "text/template/python/characters.h"
#include "text/template/python/functions.h"
#include "text/template/python/methods.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

constexpr std::size_t kReadsPerCodePoint = 32;  // decoded, stored in four bytes, and encoded

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

PyInt clamp_bound(const PyValue& bound, PyInt missing, PyInt length, PyInt step) {
  if (bound.is(PyKind::none)) return missing;
  const auto i = bound.integer();
  if (!i) py_fail("slice indices must be integers or None or have an __index__ method");
  const PyInt low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
  return std::clamp(*i < 0 ? *i + length : *i, low, high);
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

bool py_is_iterable(const PyValue& value) {
  switch (value.kind()) {
    case PyKind::undefined:
    case PyKind::string:
    case PyKind::list:
    case PyKind::tuple:
    case PyKind::dict: return true;
    case PyKind::object: break;
    default: return false;
  }
  PyWork unused;
  return static_cast<bool>(value.object().iterate(unused));
}

PyNext py_iterate(PyWork& work, const PyValue& value) {
  switch (value.kind()) {
    case PyKind::undefined: return [] { return std::optional<PyValue>(); };
    case PyKind::string:
      return [value, pos = std::size_t{0}]() mutable -> std::optional<PyValue> {
        if (pos >= value.text().size()) return std::nullopt;
        const std::size_t start = pos;
        next_code_point(value.text(), pos);
        return value.text().substr(start, pos - start);
      };
    case PyKind::list:
    case PyKind::tuple:
      return [value, at = std::size_t{0}]() mutable -> std::optional<PyValue> {
        return at < value.items().size() ? std::optional(value.items()[at++]) : std::nullopt;
      };
    case PyKind::dict:
      return [value, at = std::size_t{0}]() mutable -> std::optional<PyValue> {
        return at < value.dict().entries.size() ? std::optional(value.dict().entries[at++].first) : std::nullopt;
      };
    case PyKind::object:
      if (PyNext next = value.object().iterate(work)) return next;
      break;
    default: break;
  }
  py_fail("'" + py_type_name(value) + "' object is not iterable");
}

PyItems py_list(PyWork& work, const PyValue& value) {
  if (value.is_sequence()) {
    work.make(value.items().size() * sizeof(PyValue));
    return value.items();
  }
  PyItems items;
  const PyNext next = py_iterate(work, value);
  while (auto item = next()) {
    work.step();
    PyWork::require_fits(items.size() * sizeof(PyValue));
    items.push_back(std::move(*item));
  }
  return items;
}

std::optional<std::size_t> py_length(const PyValue& value) {
  switch (value.kind()) {
    case PyKind::undefined: return 0;
    case PyKind::string: return count_code_points(value.text());
    case PyKind::list:
    case PyKind::tuple: return value.items().size();
    case PyKind::dict: return value.dict().entries.size();
    case PyKind::object: return value.object().length();
    default: return std::nullopt;
  }
}

std::optional<PyValue> py_at(const PyValue& value, PyInt index) {
  if (value.is(PyKind::dict) || value.is(PyKind::undefined)) return std::nullopt;
  const auto length = py_length(value);
  if (!length) return std::nullopt;
  if (index < 0) index += static_cast<PyInt>(*length);
  if (index < 0 || index >= static_cast<PyInt>(*length)) return std::nullopt;
  const auto i = static_cast<std::size_t>(index);
  if (value.is_sequence()) return value.items()[i];
  if (!value.is_string()) return value.object().item(i);
  std::size_t pos = *length == value.text().size() ? i : byte_offset(value.text(), i);
  const std::size_t start = pos;
  next_code_point(value.text(), pos);
  return value.text().substr(start, pos - start);
}

PyValue py_slice(PyWork& work, const PyValue& value, const PyItems& bounds) {
  if (value.is(PyKind::undefined)) py_fail(value.undefined_message());
  const auto length = py_length(value);
  const bool indexed = length && !value.is(PyKind::dict) &&
                       (!value.is(PyKind::object) || *length == 0 || value.object().item(0).has_value());
  if (!indexed) py_fail("'" + py_type_name(value) + "' object is not subscriptable");
  const PyInt step = bounds[2].is(PyKind::none) ? PyInt{1} : bounds[2].integer().value_or(0);
  if (step == 0) py_fail("slice step cannot be zero");
  const auto n = static_cast<PyInt>(*length);
  const PyInt start = clamp_bound(bounds[0], step < 0 ? n - 1 : 0, n, step);
  const PyInt stop = clamp_bound(bounds[1], step < 0 ? -1 : n, n, step);
  work.make(value.is_string() ? value.text().size() : *length * sizeof(PyValue));
  if (value.is_string()) work.read(value.text().size() * kReadsPerCodePoint);
  if (value.is_string()) {
    const std::u32string points = code_points(value.text());
    std::u32string taken;
    for (PyInt i = start; step < 0 ? i > stop : i < stop; i += step) taken += points[static_cast<std::size_t>(i)];
    return value.is_markup() ? PyValue::markup(to_utf8(taken)) : PyValue(to_utf8(taken));
  }
  PyItems taken;
  for (PyInt i = start; step < 0 ? i > stop : i < stop; i += step) taken.push_back(*py_at(value, i));
  return value.is(PyKind::tuple) ? PyValue::tuple(std::move(taken)) : PyValue::list(std::move(taken));
}

}  // namespace qtrain
