#include "text/template/python/value.h"

#include "text/template/python/compare.h"
#include "text/template/python/error.h"

namespace qtrain {
namespace {

constexpr std::size_t kIndexedFrom = 8;  // entries from which a dict has an index

}  // namespace

PyValue::PyValue(PyDict dict) : held_(std::make_shared<const PyDict>(std::move(dict))) {}

PyValue PyValue::list(PyItems items) {
  return PyValue(std::make_shared<const PyList>(PyList{std::move(items)}));
}

PyValue PyValue::tuple(PyItems items) {
  return PyValue(std::make_shared<const PyList>(PyList{.items = std::move(items), .tuple = true}));
}

PyValue PyValue::markup(std::string s) {
  PyValue made;
  made.held_ = std::make_shared<const PyStr>(PyStr{std::move(s), true});
  return made;
}

PyValue PyValue::undefined(std::string message) {
  PyValue made;
  made.held_ = std::make_shared<const PyUndefined>(PyUndefined{std::move(message)});
  return made;
}

PyKind PyValue::kind() const {
  constexpr PyKind kinds[] = {PyKind::undefined, PyKind::none, PyKind::boolean, PyKind::integer, PyKind::real,
                              PyKind::string,    PyKind::list, PyKind::dict,    PyKind::object};
  const PyKind k = kinds[held_.index()];
  return k == PyKind::list && sequence().tuple ? PyKind::tuple : k;
}

std::optional<PyInt> PyValue::integer() const {
  if (const auto* i = std::get_if<PyInt>(&held_)) return *i;
  if (const auto* b = std::get_if<bool>(&held_)) return *b ? 1 : 0;
  return std::nullopt;
}

const PyItems& PyValue::items() const {
  return sequence().items;
}

bool PyValue::same_object(const PyValue& other) const {
  if (held_.index() != other.held_.index()) return false;
  if (is(PyKind::none)) return true;
  if (is(PyKind::boolean)) return boolean() == other.boolean();
  if (is_string()) return &text() == &other.text();
  if (is_sequence()) return &sequence() == &other.sequence();
  if (is(PyKind::dict)) return &dict() == &other.dict();
  return is(PyKind::object) && &object() == &other.object();
}

const PyValue* PyDict::find_text(std::string_view key) const {
  if (!strings_.empty()) {
    const auto found = strings_.find(key);
    return found == strings_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [k, v] : entries)
    if (k.is_string() && k.text() == key) return &v;
  return nullptr;
}

const PyValue* PyDict::find(PyWork& work, const PyValue& key) const {
  py_require_hashable(key);
  if (key.is_string()) return find_text(key.text());
  for (const auto& [k, v] : entries)
    if (py_equal(work, k, key)) return &v;
  return nullptr;
}

void PyDict::set(PyWork& work, PyValue key, PyValue value) {
  if (const PyValue* found = find(work, key)) {
    *const_cast<PyValue*>(found) = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() < kIndexedFrom) return;
  for (std::size_t i = strings_.empty() ? 0 : entries.size() - 1; i < entries.size(); ++i)
    if (entries[i].first.is_string()) strings_.emplace(entries[i].first.text(), i);
}

std::string PyObject::repr(PyWork&) {
  return "<" + std::string(type_name()) + " object>";
}

PyValue PyObject::call(PyWork&, const PyArgs&) {
  py_fail("'" + std::string(type_name()) + "' object is not callable");
}

std::string py_type_name(const PyValue& value) {
  switch (value.kind()) {
    case PyKind::undefined: return "Undefined";
    case PyKind::none: return "NoneType";
    case PyKind::boolean: return "bool";
    case PyKind::integer: return "int";
    case PyKind::real: return "float";
    case PyKind::string: return value.is_markup() ? "Markup" : "str";
    case PyKind::list: return "list";
    case PyKind::tuple: return "tuple";
    case PyKind::dict: return "dict";
    case PyKind::object: break;
  }
  return std::string(value.object().type_name());
}

bool py_truth(const PyValue& value) {
  switch (value.kind()) {
    case PyKind::undefined:
    case PyKind::none: return false;
    case PyKind::boolean: return value.boolean();
    case PyKind::integer: return *value.integer() != 0;
    case PyKind::real: return value.real() != 0.0;
    case PyKind::string: return !value.text().empty();
    case PyKind::list:
    case PyKind::tuple: return !value.items().empty();
    case PyKind::dict: return !value.dict().entries.empty();
    case PyKind::object: break;
  }
  return value.object().length().value_or(1) != 0;
}

void py_require_hashable(const PyValue& value) {
  if (value.is(PyKind::list) || value.is(PyKind::dict)) py_fail("unhashable type: '" + py_type_name(value) + "'");
  if (value.is(PyKind::tuple))
    for (const PyValue& item : value.items()) py_require_hashable(item);
}

}  // namespace qtrain
