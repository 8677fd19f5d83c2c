#include "text/template/jinja/number_filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/template/python/functions.h"
#include "text/template/python/numbers.h"
#include "text/template/python/operators.h"

namespace qtrain {
namespace {

std::optional<PyInt> whole(double d) {
  if (!std::isfinite(d)) return std::nullopt;
  if (std::fabs(d) >= 0x1p126) py_fail("an integer beyond 127 bits");
  return static_cast<PyInt>(d);
}

/// A text is copied, stripped, and read more than once.
void read_number(PyWork& work, const PyValue& subject) {
  if (subject.is_string()) work.read(subject.text().size() * 32);
}

PyValue to_int(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("int", args, {"default", "base"});
  read_number(work, subject);
  if (subject.is(PyKind::undefined)) py_fail(subject.undefined_message());
  if (const auto i = subject.integer()) return *i;
  std::optional<double> real;
  if (subject.is(PyKind::real)) {
    if (std::isinf(subject.real())) py_fail("cannot convert float infinity to integer");
    real = subject.real();
  } else if (subject.is_string()) {
    if (const auto i = py_parse_int(subject.text(), static_cast<int>(py_clamp(a.integer(1, 10))))) return *i;
    real = py_parse_real(subject.text());
  }
  const auto i = real ? whole(*real) : std::nullopt;
  return i ? PyValue(*i) : a.value(0, 0);
}

PyValue to_float(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("float", args, {"default"});
  read_number(work, subject);
  if (subject.is(PyKind::undefined)) py_fail(subject.undefined_message());
  const auto real = subject.is_string() ? py_parse_real(subject.text()) : py_as_real(subject);
  return real ? PyValue(*real) : a.value(0, 0.0);
}

PyValue absolute(PyWork&, const PyValue& subject, const PyArgs& args) {
  const PyBound a("abs", args, {});
  if (subject.is(PyKind::real)) return std::fabs(subject.real());
  const auto i = subject.integer();
  if (!i) py_fail("bad operand type for abs(): '" + py_type_name(subject) + "'");
  return *i < 0 ? py_unary(PyOp::neg, subject) : PyValue(*i);
}

/// Python's round of a float: the nearest decimal to its exact value, ties to even.
double round_real(double value, int digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < 0) {
    if (digits < -308) return 0.0;
    const double unit = std::pow(10.0, -digits);
    return std::nearbyint(value / unit) * unit;
  }
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return std::strtod(buffer, nullptr);
}

PyInt round_int(PyInt value, int digits) {
  if (digits >= 0) return value;
  if (digits < -37) return 0;
  PyInt unit = 1;
  for (int i = 0; i > digits; --i) unit *= 10;
  const PyInt rest = ((value % unit) + unit) % unit, down = value - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
  return up ? down + unit : down;
}

PyValue round(PyWork&, const PyValue& subject, const PyArgs& args) {
  const PyBound a("round", args, {"precision", "method"});
  const std::string method = a[1] ? a.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") py_fail("method must be common, ceil or floor");
  if (subject.is(PyKind::undefined)) py_fail(subject.undefined_message());
  const auto real = py_as_real(subject);
  if (!real) py_fail("type " + py_type_name(subject) + " doesn't define __round__ method");
  const auto digits = static_cast<int>(std::clamp<std::int64_t>(py_clamp(a.integer(0, 0)), -400, 400));
  if (method == "common") {
    if (const auto i = subject.integer()) return round_int(*i, digits);
    return round_real(*real, digits);
  }
  const double unit = std::pow(10.0, digits);
  const double scaled = *real * unit;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
}

constexpr auto kNumberFilters =
    std::to_array<FilterEntry>({{"int", to_int}, {"float", to_float}, {"abs", absolute}, {"round", round}});

}  // namespace

std::span<const FilterEntry> number_filters() {
  return kNumberFilters;
}

}  // namespace qtrain
