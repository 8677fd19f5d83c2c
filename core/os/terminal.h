#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace qtrain {

/// What may be written to a stream beside plain lines.
struct Terminal {
  bool redraws = false;  ///< a line can be drawn again: a terminal that is not TERM=dumb
  bool colors = false;   ///< also NO_COLOR (no-color.org) is not set
};

/// The capabilities of a file descriptor's terminal, from its type and the environment.
Terminal terminal_of(int descriptor);

/// Whether characters beyond ASCII are shown, by LC_ALL, LC_CTYPE and LANG.
bool shows_unicode();

/// The beginning of a line of UTF-8 that has so many columns; each character has one.
std::string_view first_columns(std::string_view line, int columns);

/// Columns of the terminal as it is now (it may have been resized), else COLUMNS, else 80.
int terminal_width(int descriptor);
/// Its lines, else 24.
int terminal_height(int descriptor);

/// One line in lines of at most `columns`, cut between words; those behind the first stand two columns further in. A
/// word that is longer keeps a line to itself.
std::vector<std::string> wrapped(std::string_view line, int columns);

/// Escape sequences. A line that can be redrawn leaves the cursor at its beginning: where the terminal becomes
/// narrower and wraps it, everything from there on is what has to be erased.
inline constexpr std::string_view kEraseBelow = "\r\x1b[J", kRed = "\x1b[1;31m", kYellow = "\x1b[1;33m",
                                  kPlain = "\x1b[0m";

}  // namespace qtrain
