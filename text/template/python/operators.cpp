#include "text/template/python/operators.h"

#include "text/template/python/error.h"
#include "text/template/python/markup.h"
#include "text/template/python/percent.h"

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

PyValue py_unary(PyOp op, const PyValue& a) {
  if (a.is(PyKind::undefined)) py_fail(a.undefined_message());
  if (a.is(PyKind::real)) return op == PyOp::neg ? -a.real() : a.real();
  if (const auto i = a.integer()) return op == PyOp::neg ? py_int_binary(PyOp::sub, 0, *i) : PyValue(*i);
  py_fail(std::string("bad operand type for unary ") + (op == PyOp::neg ? "-" : "+") + ": '" + py_type_name(a) + "'");
}

}  // namespace qtrain
