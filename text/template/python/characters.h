#pragma once

namespace qtrain {

bool is_py_space(char32_t c);    ///< str.isspace for one character
bool is_py_digit(char32_t c);    ///< str.isdigit
bool is_py_decimal(char32_t c);  ///< str.isdecimal
bool is_py_alpha(char32_t c);    ///< str.isalpha
bool is_py_upper(char32_t c);    ///< str.isupper
bool is_py_lower(char32_t c);    ///< str.islower
/// `\w` of a regular expression; also the characters of identifiers.
bool is_py_word(char32_t c);

}  // namespace qtrain
