#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qtrain {

/// The first character of a text.
struct FirstCharacter {
  std::uint32_t point = 0;  ///< the code point; if invalid, the first byte
  std::size_t bytes = 1;
  bool valid = false;
};
FirstCharacter first_character(std::string_view text);

bool is_valid_utf8(std::string_view text);

/// The same text, with U+FFFD for each byte that is not UTF-8.
std::string valid_utf8(std::string_view text);

/// Makes external text safe for a terminal: characters that could move its cursor, change its state or reorder text
/// (control characters except line ends and tabs, overrides of direction), and bytes that are not UTF-8, are shown as
/// escapes, "\x1b" or "\u202e".
std::string printable(std::string_view text);

/// The same with line ends escaped too, for a name within a line.
std::string one_line(std::string_view text);

}  // namespace qtrain
