#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// Answers side by side on a terminal: each is written into a column of its own while it grows, beginning at the height
/// of the first. Functions return what to write to the terminal. One whose beginning has left the screen by then comes
/// below.
class AnswerColumns {
 public:
  /// The least columns of a screen that has room for two.
  static constexpr int kLeastWidth = 100;

  struct Screen {
    int columns, lines;
  };
  AnswerColumns(Screen screen, int answers) : screen_(screen), width_((screen.columns - 1 + kGap) / answers - kGap) {}

  /// Goes to the beginning of the next column.
  std::string begin();
  /// More of its text, in UTF-8. Lines are cut between words; what moves the cursor otherwise is left out.
  std::string add(std::string_view text);
  /// Goes below all columns.
  std::string end();
  /// Something else was written in between: the next column begins below it.
  void forget() { rows_ = screen_.lines + 1; }

 private:
  static constexpr int kGap = 3;

  std::string add(std::string_view character, int columns);
  std::string next_line();
  std::string at(int column) const;

  Screen screen_;
  int width_;
  int offset_ = -1;  ///< of this column; -1 before the first
  int row_ = 0, rows_ = 0, column_ = 0;
  std::string word_;  ///< the last one so far, and how many columns it has
  int word_columns_ = 0;
};

}  // namespace qtrain
