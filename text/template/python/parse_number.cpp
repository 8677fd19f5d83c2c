#include "text/template/python/parse_number.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/template/python/error.h"
#include "text/template/python/letter_case.h"
#include "text/template/python/text.h"

namespace qtrain {

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
