#include "text/template/py_ops.h"

#include <algorithm>

#include "text/template/py_text.h"

namespace qtrain {
namespace {

std::string_view symbol_of(PyOp op) {
  switch (op) {
    case PyOp::add: return "+";
    case PyOp::sub: return "-";
    case PyOp::mul: return "*";
    case PyOp::div: return "/";
    case PyOp::floor_div: return "//";
    case PyOp::mod: return "%";
    default: return "** or pow()";
  }
}

PyValue add_texts(PyWork& work, const PyValue& a, const PyValue& b) {
  work.make(a.text().size() + b.text().size());
  if (!a.is_markup() && !b.is_markup()) return a.text() + b.text();
  const auto safe = [](const PyValue& v) { return v.is_markup() ? v.text() : html_escape(v.text()); };
  return PyValue::markup(safe(a) + safe(b));
}

PyValue add_items(PyWork& work, const PyValue& a, const PyValue& b) {
  PyItems items = a.items();
  work.make((items.size() + b.items().size()) * sizeof(PyValue));
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(PyKind::list) ? PyValue::list(std::move(items)) : PyValue::tuple(std::move(items));
}

std::size_t repeated_size(std::size_t size, PyInt times) {
  if (times <= 0 || size == 0) return 0;
  const auto limit = static_cast<PyInt>(std::size_t{1} << 40);
  if (times > limit) PyWork::require_fits(std::size_t{1} << 40);
  return size * static_cast<std::size_t>(times);
}

PyValue repeat(PyWork& work, const PyValue& value, PyInt times) {
  if (value.is_string()) {
    const std::size_t size = repeated_size(value.text().size(), times);
    work.make(size);
    std::string text;
    while (text.size() < size) text += value.text();
    return value.is_markup() ? PyValue::markup(std::move(text)) : PyValue(std::move(text));
  }
  const std::size_t size = repeated_size(value.items().size(), times);
  work.make(size * sizeof(PyValue));
  PyItems items;
  while (items.size() < size) items.insert(items.end(), value.items().begin(), value.items().end());
  return value.is(PyKind::list) ? PyValue::list(std::move(items)) : PyValue::tuple(std::move(items));
}

bool repeats(const PyValue& v) {
  return v.is_string() || v.is_sequence();
}

}  // namespace

PyValue py_binary(PyWork& work, PyOp op, const PyValue& a, const PyValue& b) {
  if (op == PyOp::mod && a.is_string()) return py_percent(work, a.text(), b);
  for (const PyValue* v : {&a, &b})
    if (v->is(PyKind::undefined)) py_fail(v->undefined_message());
  const auto i = a.integer(), j = b.integer();
  if (i && j) return py_int_binary(op, *i, *j);
  const auto x = py_as_real(a), y = py_as_real(b);
  if (x && y) return py_real_binary(op, *x, *y);
  if (op == PyOp::add && a.is_string() && b.is_string()) return add_texts(work, a, b);
  if (op == PyOp::add && a.is_sequence() && a.kind() == b.kind()) return add_items(work, a, b);
  if (op == PyOp::mul && repeats(a) && j) return repeat(work, a, *j);
  if (op == PyOp::mul && repeats(b) && i) return repeat(work, b, *i);
  if (op == PyOp::add && (a.is_string() || a.is_sequence()))
    py_fail("can only concatenate " + py_type_name(a) + " (not \"" + py_type_name(b) + "\") to " + py_type_name(a));
  py_fail("unsupported operand type(s) for " + std::string(symbol_of(op)) + ": '" + py_type_name(a) + "' and '" +
          py_type_name(b) + "'");
}

bool py_contains(PyWork& work, const PyValue& item, const PyValue& container) {
  if (container.is_string()) {
    if (!item.is_string()) py_fail("'in <string>' requires string as left operand, not " + py_type_name(item));
    work.step(1 + container.text().size() / 256);
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(PyKind::dict)) return container.dict().find(work, item) != nullptr;
  if (!py_is_iterable(container)) py_fail("argument of type '" + py_type_name(container) + "' is not iterable");
  const PyNext next = py_iterate(work, container);
  while (const auto other = next())
    if (other->same_object(item) || py_equal(work, *other, item)) return true;
  return false;
}

bool py_compare(PyWork& work, PyCompare op, const PyValue& a, const PyValue& b) {
  switch (op) {
    case PyCompare::eq: return py_equal(work, a, b);
    case PyCompare::ne: return !py_equal(work, a, b);
    case PyCompare::lt: return py_less(work, a, b, "<");
    case PyCompare::gt: return py_less(work, b, a, ">");
    case PyCompare::le: return py_less(work, a, b, "<=") || py_equal(work, a, b);
    case PyCompare::ge: return py_less(work, b, a, ">=") || py_equal(work, a, b);
    case PyCompare::in: return py_contains(work, a, b);
    case PyCompare::not_in: return !py_contains(work, a, b);
  }
  return false;
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

namespace {

PyInt clamp_bound(const PyValue& bound, PyInt missing, PyInt length, PyInt step) {
  if (bound.is(PyKind::none)) return missing;
  const auto i = bound.integer();
  if (!i) py_fail("slice indices must be integers or None or have an __index__ method");
  const PyInt low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
  return std::clamp(*i < 0 ? *i + length : *i, low, high);
}

}  // namespace

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
