#include "text/template/python/compare.h"

#include <algorithm>
#include <cmath>

#include "text/template/python/arithmetic.h"
#include "text/template/python/error.h"
#include "text/template/python/sequence.h"
#include "text/template/python/text.h"

namespace qtrain {
namespace {

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
