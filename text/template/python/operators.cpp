#include "text/template/python/operators.h"

#include <algorithm>
#include <cmath>

#include "text/template/python/access.h"
#include "text/template/python/format.h"
#include "text/template/python/text.h"

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

/// Sign of i - d, exact even if i has no double representation; d is not NaN.
int compare_exactly(PyInt i, double d) {
  if (d >= 0x1p126) return -1;
  if (d <= -0x1p126) return 1;
  const double whole = std::floor(d);
  const auto floor = static_cast<PyInt>(whole);
  if (i != floor) return i < floor ? -1 : 1;
  return d > whole ? -1 : 0;
}

bool equal_numbers(const PyValue& a, const PyValue& b) {
  const auto i = a.integer(), j = b.integer();
  if (i && j) return *i == *j;
  if (i) return !std::isnan(b.real()) && compare_exactly(*i, b.real()) == 0;
  if (j) return !std::isnan(a.real()) && compare_exactly(*j, a.real()) == 0;
  return a.real() == b.real();
}

bool less_numbers(const PyValue& a, const PyValue& b) {
  const auto i = a.integer(), j = b.integer();
  if (i && j) return *i < *j;
  if (i) return !std::isnan(b.real()) && compare_exactly(*i, b.real()) < 0;
  if (j) return !std::isnan(a.real()) && compare_exactly(*j, a.real()) > 0;
  return a.real() < b.real();
}

bool equal_items(PyWork& work, const PyItems& a, const PyItems& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const PyValue& x, const PyValue& y) { return x.same_object(y) || py_equal(work, x, y); });
}

bool equal_dicts(PyWork& work, const PyDict& a, const PyDict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const PyValue* other = b.find(work, entry.first);
    return other && py_equal(work, entry.second, *other);
  });
}

bool contains(PyWork& work, const PyValue& item, const PyValue& container) {
  if (container.is_string()) {
    if (!item.is_string()) py_fail("'in <string>' requires string as left operand, not " + py_type_name(item));
    return py_find(work, container.text(), item.text()) != std::string::npos;
  }
  if (container.is(PyKind::dict)) return container.dict().find(work, item) != nullptr;
  if (!py_is_iterable(container)) py_fail("argument of type '" + py_type_name(container) + "' is not iterable");
  const PyNext next = py_iterate(work, container);
  while (const auto other = next())
    if (other->same_object(item) || py_equal(work, *other, item)) return true;
  return false;
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

PyValue py_unary(PyOp op, const PyValue& a) {
  if (a.is(PyKind::undefined)) py_fail(a.undefined_message());
  if (a.is(PyKind::real)) return op == PyOp::neg ? -a.real() : a.real();
  if (const auto i = a.integer()) return op == PyOp::neg ? py_int_binary(PyOp::sub, 0, *i) : PyValue(*i);
  py_fail(std::string("bad operand type for unary ") + (op == PyOp::neg ? "-" : "+") + ": '" + py_type_name(a) + "'");
}

bool py_equal(PyWork& work, const PyValue& a, const PyValue& b) {
  PyWork::Level level(work);
  if (py_as_real(a) && py_as_real(b)) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case PyKind::undefined:
    case PyKind::none: return true;
    case PyKind::string:
      if (a.text().size() == b.text().size()) work.read(a.text().size());
      return a.text() == b.text();
    case PyKind::list:
    case PyKind::tuple: return a.same_object(b) || equal_items(work, a.items(), b.items());
    case PyKind::dict: return a.same_object(b) || equal_dicts(work, a.dict(), b.dict());
    default: return a.same_object(b);
  }
}

bool py_less(PyWork& work, const PyValue& a, const PyValue& b, std::string_view op) {
  PyWork::Level level(work);
  for (const PyValue* v : {&a, &b})
    if (v->is(PyKind::undefined)) py_fail(v->undefined_message());
  if (py_as_real(a) && py_as_real(b)) return less_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    work.read(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // UTF-8 sorts like code points
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const PyItems &x = a.items(), &y = b.items();
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!py_equal(work, x[i], y[i])) return py_less(work, x[i], y[i], op);
    return x.size() < y.size();
  }
  py_fail("'" + std::string(op) + "' not supported between instances of '" + py_type_name(a) + "' and '" +
          py_type_name(b) + "'");
}

bool py_compare(PyWork& work, PyCompare op, const PyValue& a, const PyValue& b) {
  switch (op) {
    case PyCompare::eq: return py_equal(work, a, b);
    case PyCompare::ne: return !py_equal(work, a, b);
    case PyCompare::lt: return py_less(work, a, b, "<");
    case PyCompare::gt: return py_less(work, b, a, ">");
    case PyCompare::le: return py_less(work, a, b, "<=") || py_equal(work, a, b);
    case PyCompare::ge: return py_less(work, b, a, ">=") || py_equal(work, a, b);
    case PyCompare::in: return contains(work, a, b);
    case PyCompare::not_in: return !contains(work, a, b);
  }
  return false;
}

}  // namespace qtrain
