#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace qtrain {

// A Python string is a sequence of code points; here it is stored as UTF-8.

/// Decodes the code point at `pos` and advances `pos`; a stray byte stands for itself.
char32_t next_code_point(std::string_view text, std::size_t& pos);
void append_code_point(std::string& text, char32_t c);
std::u32string code_points(std::string_view text);
std::string to_utf8(std::u32string_view points);
/// len(str)
std::size_t count_code_points(std::string_view text);
/// Byte offset of the code point with this index (the text's length for the index past the end).
std::size_t byte_offset(std::string_view text, std::size_t index);

bool is_py_space(char32_t c);    ///< str.isspace for one character
bool is_py_digit(char32_t c);    ///< str.isdigit
bool is_py_decimal(char32_t c);  ///< str.isdecimal
bool is_py_alpha(char32_t c);    ///< str.isalpha
bool is_py_upper(char32_t c);    ///< str.isupper
bool is_py_lower(char32_t c);    ///< str.islower
/// `\w` of a regular expression; also the characters of identifiers.
bool is_py_word(char32_t c);

// On UTF-8, with the full case mappings of Unicode.

/// str.upper; likewise the others.
std::string py_upper(std::string_view text);
std::string py_lower(std::string_view text);
std::string py_title(std::string_view text);
std::string py_capitalize(std::string_view text);
/// str.isupper, str.islower: at least one cased letter, and all of them in this case.
bool py_is_upper(std::string_view text);
bool py_is_lower(std::string_view text);

}  // namespace qtrain
