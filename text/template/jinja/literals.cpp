#include "text/template/jinja/literals.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "text/template/jinja/syntax_error.h"
#include "text/template/python/characters.h"
#include "text/template/python/numbers.h"

namespace qtrain {
namespace {

std::size_t float_length(std::string_view text) {
  const std::size_t whole = digits_length(text, 10);
  if (whole == 0) return 0;
  std::size_t end = whole;
  if (end + 1 < text.size() && text[end] == '.') {
    const std::size_t fraction = digits_length(text.substr(end + 1), 10);
    if (fraction > 0) end += 1 + fraction;
  }
  if (end < text.size() && (text[end] | 0x20) == 'e') {
    const bool sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-');
    const std::size_t exponent = digits_length(text.substr(std::min(text.size(), end + (sign ? 2 : 1))), 10);
    if (exponent > 0) end += (sign ? 2 : 1) + exponent;
  }
  return end == whole ? 0 : end;
}

std::size_t int_length(std::string_view text, int& base) {
  base = 10;
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    if (base != 10) {
      const std::size_t n = digits_length(text.substr(2), base, Leading::underscore);
      if (n > 0) return 2 + n;
      base = 10;
    }
  }
  if (text[0] != '0') return digits_length(text, 10);
  std::size_t end = 1;  // only zeros
  while (end < text.size() && (text[end] == '0' || (text[end] == '_' && end + 1 < text.size() && text[end + 1] == '0')))
    ++end;
  return end;
}

std::optional<char32_t> parse_hex(std::string_view text, std::size_t digits) {
  if (text.size() < digits || digits_length(text.substr(0, digits), 16) != digits) return std::nullopt;
  char32_t c = 0;
  for (const char d : text.substr(0, digits)) c = c * 16 + static_cast<char32_t>(digit_value(d));
  return c <= 0x10ffff ? std::optional(c) : std::nullopt;
}

/// The character of a one-letter escape.
std::optional<char> simple_escape(char c) {
  constexpr std::string_view from = "\\'\"abfnrtv", to = "\\'\"\a\b\f\n\r\t\v";
  const std::size_t at = from.find(c);
  return at == std::string_view::npos ? std::nullopt : std::optional(to[at]);
}

/// Appends the character of the escape after a backslash; returns the escape's length.
std::size_t append_escape(std::string& out, std::string_view text, int line) {
  const char c = text[0];
  if (const auto simple = simple_escape(c)) {
    out += *simple;
    return 1;
  }
  if (c == '\n') return 1;
  if (c >= '0' && c <= '7') {
    char32_t value = 0;
    std::size_t n = 0;
    while (n < 3 && n < text.size() && text[n] >= '0' && text[n] <= '7')
      value = value * 8 + static_cast<char32_t>(text[n++] - '0');
    append_code_point(out, value);
    return n;
  }
  const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (digits == 0) {
    if (c == 'N') template_syntax_error(line, "\\N{...} is not supported: write the character or its \\u escape");
    out += '\\';
    return 0;
  }
  const auto value = parse_hex(text.substr(1), digits);
  if (!value) template_syntax_error(line, std::string("truncated \\") + c + " escape");
  if (*value >= 0xd800 && *value < 0xe000) template_syntax_error(line, "a surrogate is not a character");
  append_code_point(out, *value);
  return 1 + digits;
}

}  // namespace

std::string unescape_literal(std::string_view inside, int line) {
  std::string out;
  for (std::size_t i = 0; i < inside.size();) {
    if (inside[i] != '\\' || i + 1 == inside.size()) {
      out += inside[i++];
      continue;
    }
    i += 1 + append_escape(out, inside.substr(i + 1), line);
  }
  return out;
}

std::size_t lex_number(std::string_view text, int line, PyValue& value) {
  if (text[0] < '0' || text[0] > '9') return 0;
  if (const std::size_t n = float_length(text)) {
    value = std::strtod(without_underscores(text.substr(0, n)).c_str(), nullptr);
    return n;
  }
  int base = 10;
  const std::size_t n = int_length(text, base);
  const auto parsed =
      py_parse_int(without_underscores(text.substr(base == 10 ? 0 : 2, n - (base == 10 ? 0 : 2))), base);
  if (!parsed) template_syntax_error(line, "number too large");
  value = *parsed;
  return n;
}

}  // namespace qtrain
