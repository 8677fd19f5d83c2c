#include "text/template/python/arithmetic.h"

#include <cmath>

#include "text/template/python/error.h"

namespace qtrain {
namespace {

void require_no_overflow(bool overflow) {
  if (overflow) py_fail("an integer beyond 127 bits");
}

PyInt floor_div(PyInt a, PyInt b) {
  const PyInt q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

PyInt floor_mod(PyInt a, PyInt b) {
  const PyInt r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

PyInt int_power(PyInt base, PyInt exponent) {
  PyInt result = 1;
  while (exponent > 0) {
    if (exponent & 1) require_no_overflow(__builtin_mul_overflow(result, base, &result));
    exponent >>= 1;
    if (exponent > 0) require_no_overflow(__builtin_mul_overflow(base, base, &base));
  }
  return result;
}

double real_mod(double a, double b) {
  double r = std::fmod(a, b);
  if (r != 0.0 && (r < 0.0) != (b < 0.0)) r += b;
  return r == 0.0 ? std::copysign(0.0, b) : r;
}

double real_floor_div(double a, double b) {
  double r = std::fmod(a, b), q = (a - r) / b;
  if (r != 0.0 && (r < 0.0) != (b < 0.0)) q -= 1.0;
  if (q == 0.0) return std::copysign(0.0, a / b);
  const double whole = std::floor(q);
  return q - whole > 0.5 ? whole + 1.0 : whole;
}

PyValue real_power(double a, double b) {
  if (a == 0.0 && b < 0.0) py_fail("0.0 cannot be raised to a negative power");
  if (a < 0.0 && std::isfinite(b) && b != std::floor(b)) py_fail("complex numbers are not supported");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) py_fail("Numerical result out of range");
  return result;
}

}  // namespace

std::optional<double> py_as_real(const PyValue& value) {
  if (value.is(PyKind::real)) return value.real();
  if (const auto i = value.integer()) return static_cast<double>(*i);
  return std::nullopt;
}

PyValue py_int_binary(PyOp op, PyInt a, PyInt b) {
  PyInt result = 0;
  switch (op) {
    case PyOp::add: require_no_overflow(__builtin_add_overflow(a, b, &result)); return result;
    case PyOp::sub: require_no_overflow(__builtin_sub_overflow(a, b, &result)); return result;
    case PyOp::mul: require_no_overflow(__builtin_mul_overflow(a, b, &result)); return result;
    case PyOp::pow: return b < 0 ? real_power(static_cast<double>(a), static_cast<double>(b)) : int_power(a, b);
    default: break;
  }
  if (b == 0)
    py_fail(op == PyOp::div   ? "division by zero"
            : op == PyOp::mod ? "integer modulo by zero"
                              : "integer division or modulo by zero");
  if (op == PyOp::div) return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) return op == PyOp::mod ? PyValue(0) : py_int_binary(PyOp::sub, 0, a);
  return op == PyOp::mod ? floor_mod(a, b) : floor_div(a, b);
}

PyValue py_real_binary(PyOp op, double a, double b) {
  switch (op) {
    case PyOp::add: return a + b;
    case PyOp::sub: return a - b;
    case PyOp::mul: return a * b;
    case PyOp::pow: return real_power(a, b);
    default: break;
  }
  if (b == 0.0) py_fail(op == PyOp::div ? "float division by zero" : "float floor division or modulo by zero");
  if (op == PyOp::div) return a / b;
  return op == PyOp::mod ? real_mod(a, b) : real_floor_div(a, b);
}

}  // namespace qtrain
