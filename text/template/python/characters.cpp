#include "text/template/python/characters.h"

#include <utf8proc.h>

#include "text/tokenizer/unicode.h"

namespace qtrain {

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

}  // namespace qtrain
