#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// Streams answers side by side on a terminal, each in its own column from the first one's top line on. An answer goes
/// below the others if that line has scrolled off the screen. Functions return the text to write to the terminal.
class AnswerColumns {
 public:
  /// Minimum screen width for two columns.
  static constexpr int kMinWidth = 100;

  struct Screen {
    int columns, lines;
  };
  AnswerColumns(Screen screen, int answers) : screen_(screen), width_((screen.columns - 1 + kGap) / answers - kGap) {}

  /// Moves to the top of the next column.
  std::string begin();
  /// Appends UTF-8 text to the current column. Wraps lines between words and drops control characters.
  std::string add(std::string_view text);
  /// Moves below all columns.
  std::string end();
  /// Makes the next column begin below other output that was written meanwhile.
  void forget() { rows_ = screen_.lines + 1; }

 private:
  static constexpr int kGap = 3;

  std::string add(std::string_view character, int columns);
  std::string next_line();
  std::string at(int column) const;

  Screen screen_;
  int width_;
  int offset_ = -1;  ///< screen column where this column begins; -1 before the first
  int row_ = 0, rows_ = 0, column_ = 0;
  std::string word_;  ///< the unfinished last word, and its width in screen columns
  int word_columns_ = 0;
};

}  // namespace qtrain
