#include "text/template/python/value.h"

#include <algorithm>

#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

constexpr std::size_t kIndexedFrom = 8;  // number of entries from which a dict has an index
constexpr int kMaxChain = 100;           // maximum depth of generators over generators
constexpr PyInt kMaxRange = 100'000;     // limit of the sandbox

int longest_chain(const PyItems& items) {
  int chain = 0;
  for (const PyValue& item : items) chain = std::max(chain, item.chain());
  return chain;
}

std::shared_ptr<PyList> made_list(PyItems items) {
  const auto made = std::make_shared<PyList>();
  made->chain = longest_chain(items);
  made->items = std::move(items);
  return made;
}

}  // namespace

PyValue::PyValue(PyDict dict) {
  const auto made = std::make_shared<PyDict>(std::move(dict));
  for (const auto& [key, value] : made->entries) made->chain = std::max({made->chain, key.chain(), value.chain()});
  held_ = std::shared_ptr<const PyDict>(made);
}

PyValue PyValue::list(PyItems items) {
  return PyValue(std::shared_ptr<const PyList>(made_list(std::move(items))));
}

PyValue PyValue::tuple(PyItems items) {
  const auto made = made_list(std::move(items));
  made->tuple = true;
  return PyValue(std::shared_ptr<const PyList>(made));
}

int PyValue::chain() const {
  if (const auto* list = std::get_if<std::shared_ptr<const PyList>>(&held_)) return (*list)->chain;
  if (const auto* dict = std::get_if<std::shared_ptr<const PyDict>>(&held_)) return (*dict)->chain;
  if (const auto* object = std::get_if<std::shared_ptr<PyObject>>(&held_)) return (*object)->chain();
  return 0;
}

// Lists and dicts were created as mutable objects, and nobody else refers to these any more.
void PyValue::take_apart(PyItems& into) {
  const auto take = [&](PyValue& value) {
    if (value.is_sequence() || value.is(PyKind::dict) || value.is(PyKind::object)) into.push_back(std::move(value));
  };
  if (auto* list = std::get_if<std::shared_ptr<const PyList>>(&held_); list && list->use_count() == 1) {
    PyItems& items = const_cast<PyList&>(**list).items;
    for (PyValue& item : items) take(item);
    items.clear();
  } else if (auto* dict = std::get_if<std::shared_ptr<const PyDict>>(&held_); dict && dict->use_count() == 1) {
    auto& entries = const_cast<PyDict&>(**dict).entries;
    for (auto& [key, value] : entries) take(key), take(value);
    entries.clear();
  } else if (auto* object = std::get_if<std::shared_ptr<PyObject>>(&held_); object && object->use_count() == 1) {
    (*object)->take_apart(into);
  }
}

void py_release(PyItems values) {
  while (!values.empty()) {
    PyValue value = std::move(values.back());
    values.pop_back();
    value.take_apart(values);
  }
}

void PyDict::release() {
  PyItems values;
  for (auto& [key, value] : entries)
    for (PyValue* held : {&key, &value})
      if (held->is_sequence() || held->is(PyKind::dict) || held->is(PyKind::object)) values.push_back(std::move(*held));
  entries.clear();
  py_release(std::move(values));
}

PyObject::PyObject(int chain) : chain_(chain) {
  if (chain > kMaxChain) py_fail("the template nests generators too deeply");
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
  py_require_hashable(work, key);
  if (key.is_string()) {
    work.read(key.text().size());
    return find_text(key.text());
  }
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

void py_require_hashable(PyWork& work, const PyValue& value) {
  if (value.is(PyKind::list) || value.is(PyKind::dict)) py_fail("unhashable type: '" + py_type_name(value) + "'");
  if (!value.is(PyKind::tuple)) return;
  const PyWork::Level level(work);
  for (const PyValue& item : value.items()) py_require_hashable(work, item);
}

std::string_view PyView::type_name() const {
  return part_ == Part::items ? "dict_items" : part_ == Part::keys ? "dict_keys" : "dict_values";
}

PyValue PyView::at(std::size_t index) const {
  const auto& [key, value] = dict_.dict().entries[index];
  return part_ == Part::items ? PyValue::tuple({key, value}) : part_ == Part::keys ? key : value;
}

std::string PyView::repr(PyWork& work) {
  PyItems items;
  work.make(dict_.dict().entries.size() * sizeof(PyValue));
  for (std::size_t i = 0; i < dict_.dict().entries.size(); ++i) items.push_back(at(i));
  return std::string(type_name()) + "(" + py_repr(work, PyValue::list(std::move(items))) + ")";
}

PyNext PyView::iterate(PyWork&) {
  return [view = *this, i = std::size_t{0}]() mutable -> std::optional<PyValue> {
    return i < view.dict_.dict().entries.size() ? std::optional(view.at(i++)) : std::nullopt;
  };
}

PyRange::PyRange(PyInt start, PyInt stop, PyInt step) : start_(start), stop_(stop), step_(step) {
  if (step == 0) py_fail("range() arg 3 must not be zero");
  constexpr PyInt most = PyInt{1} << 64;
  if (std::max({start, stop, step}) > most || std::min({start, stop, step}) < -most)
    py_fail("range() arguments are too large");
  const PyInt span = step > 0 ? stop - start : start - stop, stride = step > 0 ? step : -step;
  const PyInt count = span > 0 ? (span + stride - 1) / stride : 0;
  if (count > kMaxRange) py_fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  count_ = static_cast<std::size_t>(count);
}

std::string PyRange::repr(PyWork&) {
  const std::string step = step_ == 1 ? "" : ", " + py_int_text(step_);
  return "range(" + py_int_text(start_) + ", " + py_int_text(stop_) + step + ")";
}

PyNext PyRange::iterate(PyWork&) {
  return [start = start_, step = step_, count = count_, at = std::size_t{0}]() mutable -> std::optional<PyValue> {
    return at < count ? std::optional<PyValue>(start + static_cast<PyInt>(at++) * step) : std::nullopt;
  };
}

}  // namespace qtrain
