#include "text/template/python/letter_case.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "text/template/python/characters.h"
#include "text/template/python/code_points.h"
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
