#include "app/cli/answer_columns.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

namespace qtrain {

// Escape codes used: cursor up (A), go to a column counted from 1 (G), erase to the end of the line (K). Erasing is
// safe because columns are filled from left to right.
std::string AnswerColumns::begin() {
  std::string out;
  const int next = offset_ + width_ + kGap;
  if (offset_ >= 0 && rows_ <= screen_.lines && next + width_ < screen_.columns) {
    offset_ = next;
    out = (row_ > 0 ? fmt::format("\x1b[{}A", row_) : "") + at(0);
  } else {
    if (offset_ >= 0) {
      out = end();
      width_ = screen_.columns - 1;
    }
    offset_ = 0;
    rows_ = 1;
  }
  row_ = column_ = word_columns_ = 0;
  word_.clear();
  return out;
}

std::string AnswerColumns::add(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    utf8proc_int32_t code = 0;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    const auto used = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &code);
    const std::string_view character = text.substr(0, static_cast<std::size_t>(std::max<utf8proc_ssize_t>(used, 1)));
    text.remove_prefix(character.size());
    if (code == '\n')
      out += next_line();
    else if (code == '\t')
      out += add(" ", 1);
    else if (used < 0)
      out += add("?", 1);
    else if (utf8proc_category(code) != UTF8PROC_CATEGORY_CC)
      out += add(character, utf8proc_charwidth(code));
  }
  return out;
}

std::string AnswerColumns::add(std::string_view character, int columns) {
  std::string out;
  if (character == " ") {
    word_.clear();
    word_columns_ = 0;
    if (column_ == width_) return out;
    ++column_;
    return " ";
  }
  if (column_ + columns > width_) {
    const bool moves = word_columns_ > 0 && word_columns_ < column_ && word_columns_ + columns <= width_;
    const std::string word = moves ? word_ : "";
    const int word_columns = moves ? word_columns_ : 0;
    if (moves) out += at(column_ - word_columns) + "\x1b[K";
    out += next_line() + word;
    word_ = word;
    column_ = word_columns_ = word_columns;
  }
  word_ += character;
  word_columns_ += columns;
  column_ += columns;
  return out + std::string(character);
}

std::string AnswerColumns::next_line() {
  rows_ = std::max(rows_, ++row_ + 1);
  column_ = word_columns_ = 0;
  word_.clear();
  return offset_ > 0 ? "\n" + at(0) : "\n";
}

std::string AnswerColumns::at(int column) const {
  return fmt::format("\x1b[{}G", offset_ + column + 1);
}

std::string AnswerColumns::end() {
  if (offset_ < 0) return "";
  const int below = rows_ <= screen_.lines ? rows_ - 1 - row_ : 0;
  return (below > 0 ? fmt::format("\x1b[{}B", below) : "") + "\n";
}

}  // namespace qtrain
