#include "text/template/python/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/template/python/characters.h"
#include "text/template/python/text.h"

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

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'z' ? low - 'a' + 10 : 99;
}

std::size_t digits_length(std::string_view text, int base, Leading leading) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size();) {
    const bool underscore = text[i] == '_' && (i > 0 || leading == Leading::underscore);
    const std::size_t at = i + (underscore ? 1 : 0);
    if (at >= text.size() || digit_value(text[at]) >= base) break;
    end = i = at + 1;
  }
  return end;
}

std::string without_underscores(std::string_view text) {
  std::string out(text);
  out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
  return out;
}

std::optional<PyInt> py_parse_int(std::string_view text, int base) {
  std::string digits(py_strip(text));
  std::string_view s = digits;
  const bool negative = s.starts_with('-');
  if (negative || s.starts_with('+')) s.remove_prefix(1);
  if (s.size() > 2 && s[0] == '0') {
    const char mark = static_cast<char>(s[1] | 0x20);
    if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b')) {
      s.remove_prefix(2);
      if (s.starts_with('_')) s.remove_prefix(1);
    }
  }
  if (base < 2 || base > 36 || s.empty() || digits_length(s, base) != s.size()) return std::nullopt;
  PyInt value = 0;
  for (const char c : s) {
    if (c == '_') continue;
    if (__builtin_mul_overflow(value, static_cast<PyInt>(base), &value) ||
        __builtin_add_overflow(value, static_cast<PyInt>(digit_value(c)), &value))
      py_fail("an integer beyond 127 bits");
  }
  return negative ? -value : value;
}

std::optional<double> py_parse_real(std::string_view text) {
  std::string s(py_strip(text));
  std::string low = py_lower(s);
  const std::string_view word = std::string_view(low).substr(!low.empty() && (low[0] == '-' || low[0] == '+') ? 1 : 0);
  const double sign = low.starts_with('-') ? -1.0 : 1.0;
  if (word == "inf" || word == "infinity") return sign * HUGE_VAL;
  if (word == "nan") return std::nan("");
  if (s.empty() || low.find_first_not_of("0123456789+-.e_") != std::string::npos) return std::nullopt;
  for (std::size_t i = 0; i < s.size(); ++i)
    if (s[i] == '_' && (i == 0 || i + 1 == s.size() || digit_value(s[i - 1]) > 9 || digit_value(s[i + 1]) > 9))
      return std::nullopt;
  s = without_underscores(s);
  char* end = nullptr;
  const double value = std::strtod(s.c_str(), &end);
  return end == s.c_str() + s.size() ? std::optional(value) : std::nullopt;
}

}  // namespace qtrain
