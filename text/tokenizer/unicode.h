#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qtrain {

/// One character of UTF-8 text; size 1 and value U+FFFD if the bytes are not a valid character.
struct Utf8Char {
  char32_t value = 0;
  std::size_t size = 1;
  bool valid = true;
};
Utf8Char utf8_at(std::string_view text, std::size_t at);
/// The number of invalid bytes that become one U+FFFD: the longest prefix of a character, or one byte.
std::size_t broken_size(std::string_view text, std::size_t at);
void append_utf8(std::string& out, char32_t c);
/// Replaces invalid bytes by U+FFFD, one for each maximal part of a character, like Rust's from_utf8_lossy.
std::string utf8_lossy(std::string_view bytes);
bool is_utf8(std::string_view bytes);
bool is_ascii(std::string_view bytes);

/// Numbered as in utf8proc_category_t.
int general_category(char32_t c);
bool is_white_space(char32_t c);  ///< property White_Space
bool is_word_char(char32_t c);    ///< `\w` of the regex crates: letters, marks, digits, connectors
bool is_numeric(char32_t c);      ///< general category N*
bool is_punctuation(char32_t c);  ///< general category P*, or ASCII punctuation

/// Whether the library's NFC, NFD, NFKC and NFKD know the character. Characters added after Unicode 9 have no class,
/// decomposition or composition there: they stay, and nothing is reordered or composed across them.
bool known_to_normal_forms(char32_t c);
bool is_accent(char32_t c);  ///< for StripAccents
int script_of(char32_t c);   ///< a number per script of UnicodeScripts, 0 for none

/// The byte represented by a character of GPT-2's printable byte alphabet, or -1.
int byte_of_printable(char32_t c);
char32_t printable_of_byte(unsigned char byte);
/// Appends the bytes represented by a string in that alphabet. Returns false and appends nothing if a character is not
/// in it.
bool raw_bytes(std::string_view printable, std::string& out);

}  // namespace qtrain
