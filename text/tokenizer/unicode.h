#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qtrain {

/// One character of UTF-8 text; `size` 1 and value U+FFFD where the bytes are no valid character.
struct Utf8Char {
  char32_t value = 0;
  std::size_t size = 1;
  bool valid = true;
};
Utf8Char utf8_at(std::string_view text, std::size_t at);
/// How many bytes at an invalid place become one U+FFFD: the longest beginning of a character, or one.
std::size_t broken_size(std::string_view text, std::size_t at);
void append_utf8(std::string& out, char32_t c);
/// Invalid bytes become U+FFFD, one for each maximal part of a character, as Rust's from_utf8_lossy.
std::string utf8_lossy(std::string_view bytes);
bool is_utf8(std::string_view bytes);
bool is_ascii(std::string_view bytes);

/// As utf8proc_category_t names them.
int general_category(char32_t c);
bool is_white_space(char32_t c);  ///< property White_Space
bool is_word_char(char32_t c);    ///< `\w` of the regex crates: letters, marks, digits, connectors
bool is_numeric(char32_t c);      ///< general category N*
bool is_punctuation(char32_t c);  ///< general category P*, or ASCII punctuation

/// Whether the library's NFC, NFD, NFKC and NFKD know the character. Those assigned after Unicode 9 have no class, no
/// decomposition and no composition there: they stay, and nothing is moved or composed across them.
bool known_to_normal_forms(char32_t c);
bool is_accent(char32_t c);  ///< for StripAccents
int script_of(char32_t c);   ///< a number for each script of UnicodeScripts, 0 for none

/// The byte that stands behind a character of GPT-2's printable byte alphabet, or -1.
int byte_of_printable(char32_t c);
char32_t printable_of_byte(unsigned char byte);
/// Appends the bytes that a string of that alphabet stands for; false, and nothing appended, if a character of it
/// stands for none.
bool raw_bytes(std::string_view printable, std::string& out);

}  // namespace qtrain
