#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace qtrain {

/// What a stream supports in addition to plain lines.
struct Terminal {
  bool redraws = false;  ///< lines can be redrawn: it is a terminal and TERM is not "dumb"
  bool colors = false;   ///< lines can be redrawn and NO_COLOR (no-color.org) is not set
};

/// The capabilities of a file descriptor's terminal, from its type and the environment.
Terminal terminal_of(int descriptor);

/// Whether characters beyond ASCII are shown, by LC_ALL, LC_CTYPE and LANG.
bool shows_unicode();

/// The first `columns` columns of a UTF-8 line; each character counts as one.
std::string_view first_columns(std::string_view line, int columns);

/// Columns of the terminal as it is now (it may have been resized), else COLUMNS, else 80.
int terminal_width(int descriptor);
/// Lines of the terminal as it is now, else 24.
int terminal_height(int descriptor);

/// Wraps a line between words to at most `columns`; lines after the first are indented by two more columns. A word that
/// is longer gets a line to itself.
std::vector<std::string> wrapped(std::string_view line, int columns);

/// Escape sequences. A line that can be redrawn leaves the cursor at its beginning: if the terminal becomes narrower
/// and wraps the line, everything from there on has to be erased.
inline constexpr std::string_view kEraseBelow = "\r\x1b[J", kRed = "\x1b[1;31m", kYellow = "\x1b[1;33m",
                                  kPlain = "\x1b[0m";

}  // namespace qtrain
