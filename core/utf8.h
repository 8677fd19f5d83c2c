#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qtrain {

/// The first character of a text.
struct FirstCharacter {
  std::uint32_t point = 0;  ///< of a byte that begins no UTF-8: that byte
  std::size_t bytes = 1;
  bool valid = false;
};
FirstCharacter first_character(std::string_view text);

bool is_valid_utf8(std::string_view text);

/// The same text, with U+FFFD for each byte that is not UTF-8.
std::string valid_utf8(std::string_view text);

/// What a terminal may be sent of text from outside: what would move its cursor, change its state or the order in which
/// letters are read (control characters but line ends and tabs, overrides of direction) and what is not UTF-8 is shown
/// as an escape, "\x1b" or "\u202e".
std::string printable(std::string_view text);

/// The same with line ends as escapes too: a name within a line.
std::string one_line(std::string_view text);

}  // namespace qtrain
