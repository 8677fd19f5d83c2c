#include "text/template/python/format_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/template/python/code_points.h"
#include "text/template/python/error.h"
#include "text/template/python/letter_case.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

constexpr std::size_t kMaxWidth = 1'000'000;
constexpr int kMaxPrecision = 300;

std::string in_base(PyInt value, int base) {
  std::string out;
  for (; value != 0; value /= base) {
    const int digit = std::abs(static_cast<int>(value % base));
    out += static_cast<char>(digit < 10 ? '0' + digit : 'a' + digit - 10);
  }
  if (out.empty()) out += '0';
  return {out.rbegin(), out.rend()};
}

/// Inserts separators between groups of digits, from the right; `digits` may have a fraction.
std::string grouped(const std::string& digits, char separator, std::size_t size) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string sign_of(bool negative, const PySpec& spec) {
  return negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
}

/// A float with type letter `r` or none: its repr, or %g with at least one digit after the point.
std::string general_real(double value, const PySpec& spec) {
  if (!spec.precision) return py_real_text(value);
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, "%.*g", std::max(1, std::min(*spec.precision, kMaxPrecision)), value);
  std::string text = buffer;
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

}  // namespace

std::size_t parse_spec_number(std::string_view text, std::size_t& pos) {
  std::size_t number = 0;
  for (; pos < text.size() && text[pos] >= '0' && text[pos] <= '9'; ++pos) {
    number = number * 10 + static_cast<std::size_t>(text[pos] - '0');
    if (number > kMaxWidth) py_fail("a width or precision in a format is too large");
  }
  return number;
}

std::string spec_integer(PyInt value, const PySpec& spec) {
  const bool hex = spec.type == 'x' || spec.type == 'X';
  const int base = hex ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string digits = in_base(value, base);
  if (spec.type == 'X') digits = py_upper(digits);
  if (spec.precision && digits.size() < static_cast<std::size_t>(*spec.precision))
    digits.insert(0, static_cast<std::size_t>(*spec.precision) - digits.size(), '0');
  if (spec.grouping) digits = grouped(digits, spec.grouping, base == 10 ? 3 : 4);
  const std::string prefix = spec.alternate && base != 10 ? std::string("0") + spec.type : "";
  return sign_of(value < 0, spec) + prefix + digits;
}

std::string spec_real(double value, const PySpec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double size = std::fabs(value) * (spec.type == '%' ? 100.0 : 1.0);
  const bool capitals = spec.type >= 'A' && spec.type <= 'Z';
  std::string digits;
  if (!std::isfinite(size)) {
    digits = std::isnan(size) ? "nan" : "inf";
    if (capitals) digits = py_upper(digits);
  } else if (spec.type == '\0') {
    digits = general_real(size, spec);
  } else {
    char letter = spec.type == '%' ? 'f' : spec.type;
    if (letter == 'n') letter = 'g';
    const std::string c_format = std::string("%") + (spec.alternate ? "#" : "") + ".*" + letter;
    char buffer[1000];
    std::snprintf(buffer, sizeof buffer, c_format.c_str(), std::min(spec.precision.value_or(6), kMaxPrecision), size);
    digits = buffer;
  }
  if (spec.grouping) digits = grouped(digits, spec.grouping, 3);
  return sign_of(negative, spec) + digits + (spec.type == '%' ? "%" : "");
}

std::string spec_pad(PyWork& work, std::string text, const PySpec& spec, char otherwise) {
  const std::size_t size = count_code_points(text);
  if (size >= spec.width) return text;
  std::size_t pad = spec.width - size;
  work.make(spec.width * 4);
  const char align = spec.align ? spec.align : otherwise;
  std::string filling;
  for (std::size_t i = 0; i < pad; ++i) append_code_point(filling, spec.fill);
  if (align == '<') return text + filling;
  if (align == '>') return filling + text;
  if (align == '^') {
    const std::size_t left = filling.size() / pad * (pad / 2);
    return filling.substr(0, left) + text + filling.substr(left);
  }
  std::size_t head = !text.empty() && std::string_view("+- ").find(text[0]) != std::string_view::npos ? 1 : 0;
  if (spec.alternate && text.size() > head + 1 && text[head] == '0' &&
      std::isalpha(static_cast<unsigned char>(text[head + 1])))
    head += 2;
  return text.substr(0, head) + filling + text.substr(head);
}

}  // namespace qtrain
