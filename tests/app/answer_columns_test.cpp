#include "app/cli/answer_columns.h"

#include <gmock/gmock.h>

#include <vector>

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

/// A terminal as far as columns need one: every byte is one column wide.
class Screen {
 public:
  void write(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\x1b')
        i = escape(text, i + 2);
      else if (text[i] == '\n')
        ++row_, column_ = 0;
      else
        put(text[i]);
  }
  /// Its lines, without trailing blanks.
  std::vector<std::string> lines() const {
    std::vector<std::string> lines = lines_;
    for (std::string& line : lines) line.resize(line.find_last_not_of(' ') + 1);
    return lines;
  }

 private:
  std::size_t escape(std::string_view text, std::size_t i) {
    std::size_t number = 0;
    for (; text[i] >= '0' && text[i] <= '9'; ++i) number = 10 * number + static_cast<std::size_t>(text[i] - '0');
    if (text[i] == 'A') row_ -= number;
    if (text[i] == 'B') row_ += number;
    if (text[i] == 'G') column_ = number - 1;
    if (text[i] == 'K') line().resize(column_);
    return i;
  }
  std::string& line() {
    if (lines_.size() <= row_) lines_.resize(row_ + 1);
    return lines_[row_];
  }
  void put(char c) {
    if (line().size() <= column_) line().resize(column_ + 1, ' ');
    line()[column_++] = c;
  }

  std::vector<std::string> lines_;
  std::size_t row_ = 0, column_ = 0;
};

/// Writes two answers letter by letter, then a prompt, and returns the lines on the screen.
std::vector<std::string> shown(AnswerColumns::Screen size, std::string_view left, std::string_view right) {
  AnswerColumns columns(size, 2);
  Screen screen;
  for (const std::string_view answer : {left, right}) {
    screen.write(columns.begin());
    for (const char c : answer) screen.write(columns.add({&c, 1}));
  }
  screen.write(columns.end() + "> ");
  return screen.lines();
}

TEST(AnswerColumns, StandSideBySideWithLinesCutBetweenWords) {
  // Two columns of 10 characters with 3 between them; the last column of the screen stays free.
  EXPECT_THAT(shown({24, 10}, "one two three", "x\ny"), ElementsAre("one two      x", "three        y", ">"));
  EXPECT_THAT(shown({24, 10}, "x\n\ny", "one two three"),
              ElementsAre("x            one two", "             three", "y", ">"));
  EXPECT_THAT(shown({24, 10}, "one", "1 2 3 4 5 6 7"), ElementsAre("one          1 2 3 4 5", "             6 7", ">"));
}

TEST(AnswerColumns, CutWordsThatAreLongerThanAColumn) {
  EXPECT_THAT(shown({24, 10}, "a bcdefghijklmn o", ""), ElementsAre("a", "bcdefghijk", "lmn o", ">"));
}

TEST(AnswerColumns, ComeBelowWhereTheScreenIsTooLow) {
  EXPECT_THAT(shown({24, 3}, "1\n2\n3", "a long one below"),
              ElementsAre("1            a long one", "2            below", "3", ">"));
  EXPECT_THAT(shown({24, 2}, "1\n2\n3", "a long one below"), ElementsAre("1", "2", "3", "a long one below", ">"));
  AnswerColumns columns({24, 10}, 2);
  columns.begin();
  columns.forget();
  EXPECT_EQ(columns.begin(), "\n") << "the position of the cursor is unknown";
}

TEST(AnswerColumns, CountColumnsOfCharactersAndLeaveControlsOut) {
  AnswerColumns columns({24, 10}, 2);
  columns.begin();
  EXPECT_EQ(columns.add("\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd "),
            "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd ");
  EXPECT_THAT(columns.add("\xe4\xbd\xa0"), StartsWith("\n")) << "it needs two columns, but one is left";
  columns.add("\n \xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0x");
  EXPECT_EQ(columns.add("\xe4\xbd\xa0"), "\n\xe4\xbd\xa0") << "with it, the word would take eleven columns";
  EXPECT_EQ(columns.add("a\x1b[2J\r\x07"
                        "b\xff"),
            "a[2Jb?");
}

}  // namespace
}  // namespace qtrain
