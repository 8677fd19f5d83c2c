#include "text/template/python/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

/// Code points whose uppercase form has several code points: those of European text.
struct LongUpper {
  char32_t c;
  const char* upper;
  const char* title;
};
constexpr std::array kLongUpper = {
    LongUpper{0xdf, "SS", "Ss"},   LongUpper{0x149, "ʼN", "ʼN"},    LongUpper{0x1f0, "J̌", "J̌"},
    LongUpper{0x587, "ԵՒ", "Եւ"},  LongUpper{0xfb00, "FF", "Ff"},   LongUpper{0xfb01, "FI", "Fi"},
    LongUpper{0xfb02, "FL", "Fl"}, LongUpper{0xfb03, "FFI", "Ffi"}, LongUpper{0xfb04, "FFL", "Ffl"},
    LongUpper{0xfb05, "ST", "St"}, LongUpper{0xfb06, "ST", "St"}};

enum class Case : std::uint8_t { upper, title };

void append_upper(std::string& out, char32_t c, Case which) {
  if (c >= 0x80)
    for (const LongUpper& l : kLongUpper)
      if (l.c == c) {
        out += which == Case::upper ? l.upper : l.title;
        return;
      }
  const auto i = static_cast<utf8proc_int32_t>(c);
  append_code_point(out, static_cast<char32_t>(which == Case::upper ? utf8proc_toupper(i) : utf8proc_totitle(i)));
}

bool is_cased(char32_t c) {
  return is_py_upper(c) || is_py_lower(c) || general_category(c) == UTF8PROC_CATEGORY_LT;
}

/// A capital sigma at the end of a word has a different lowercase form.
bool final_sigma(const std::u32string& s, std::size_t i) {
  return i > 0 && is_cased(s[i - 1]) && (i + 1 == s.size() || !is_cased(s[i + 1]));
}

void append_lower(std::string& out, const std::u32string& s, std::size_t i) {
  if (s[i] == 0x130) {
    out += "i̇";
    return;
  }
  if (s[i] == 0x3a3 && final_sigma(s, i)) {
    append_code_point(out, 0x3c2);
    return;
  }
  append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(s[i]))));
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& pos) {
  const auto first = static_cast<unsigned char>(text[pos]);
  if (first < 0x80) return text[pos++] & 0x7f;
  utf8proc_int32_t c = -1;
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + pos);
  const auto used = utf8proc_iterate(at, static_cast<utf8proc_ssize_t>(text.size() - pos), &c);
  pos += used > 0 ? static_cast<std::size_t>(used) : 1;
  return used > 0 ? static_cast<char32_t>(c) : first;
}

void append_code_point(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) points += next_code_point(text, pos);
  return points;
}

std::string to_utf8(std::u32string_view points) {
  std::string text;
  text.reserve(points.size());
  for (const char32_t c : points) append_code_point(text, c);
  return text;
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t pos = 0;
  while (index-- > 0 && pos < text.size()) next_code_point(text, pos);
  return pos;
}

bool is_py_space(char32_t c) {
  if (c < 0x80) return c == 0x20 || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_py_decimal(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : general_category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_py_digit(char32_t c) {
  // Superscripts, subscripts and circled digits are digits too, but not decimals.
  return is_py_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

bool is_py_alpha(char32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  const auto k = general_category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_py_upper(char32_t c) {
  return c < 0x80 ? c >= 'A' && c <= 'Z' : utf8proc_tolower(static_cast<utf8proc_int32_t>(c)) != static_cast<int>(c);
}

bool is_py_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return general_category(c) == UTF8PROC_CATEGORY_LL || c == 0xaa || c == 0xba;
}

bool is_py_word(char32_t c) {
  if (c == '_' || is_py_alpha(c) || is_py_digit(c)) return true;
  const auto k = general_category(c);
  return c >= 0x80 && (k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO);
}

std::string py_upper(std::string_view text) {
  std::string out;
  for (const char32_t c : code_points(text)) append_upper(out, c, Case::upper);
  return out;
}

std::string py_lower(std::string_view text) {
  std::string out;
  const std::u32string s = code_points(text);
  for (std::size_t i = 0; i < s.size(); ++i) append_lower(out, s, i);
  return out;
}

std::string py_title(std::string_view text) {
  std::string out;
  const std::u32string s = code_points(text);
  for (std::size_t i = 0; i < s.size(); ++i)
    if (i > 0 && is_cased(s[i - 1]))
      append_lower(out, s, i);
    else
      append_upper(out, s[i], Case::title);
  return out;
}

std::string py_capitalize(std::string_view text) {
  std::string out;
  const std::u32string s = code_points(text);
  for (std::size_t i = 0; i < s.size(); ++i)
    if (i == 0)
      append_upper(out, s[i], Case::title);
    else
      append_lower(out, s, i);
  return out;
}

bool py_is_upper(std::string_view text) {
  const std::u32string s = code_points(text);
  return std::any_of(s.begin(), s.end(), is_py_upper) && std::none_of(s.begin(), s.end(), is_py_lower);
}

bool py_is_lower(std::string_view text) {
  const std::u32string s = code_points(text);
  return std::any_of(s.begin(), s.end(), is_py_lower) && std::none_of(s.begin(), s.end(), is_py_upper);
}

}  // namespace qtrain
