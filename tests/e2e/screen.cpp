#include "tests/e2e/screen.h"

#include <algorithm>
#include <cctype>

namespace qtrain::e2e {
namespace {

/// A terminal with as many rows as needed.
class Screen {
 public:
  explicit Screen(int columns) : columns_(static_cast<std::size_t>(columns)) {}

  void put(char c) {
    if (c == '\r') {
      at_ = 0;
    } else if (c == '\n') {
      ++row_;
    } else {
      if (at_ == columns_) at_ = 0, ++row_;
      cell(row_, at_++) = c;
    }
  }
  void erase_below() {
    if (row_ >= rows_.size()) return;
    rows_.resize(row_ + 1);
    rows_[row_].resize(std::min(rows_[row_].size(), at_));
  }
  void up(std::size_t rows) { row_ -= std::min(row_, rows); }
  std::vector<std::string> lines() && {
    for (std::string& row : rows_) row.erase(row.find_last_not_of(' ') + 1);
    while (!rows_.empty() && rows_.back().empty()) rows_.pop_back();
    return std::move(rows_);
  }

 private:
  char& cell(std::size_t row, std::size_t at) {
    if (rows_.size() <= row) rows_.resize(row + 1);
    if (rows_[row].size() <= at) rows_[row].resize(at + 1, ' ');
    return rows_[row][at];
  }
  std::size_t columns_, row_ = 0, at_ = 0;
  std::vector<std::string> rows_;
};

}  // namespace

std::vector<std::string> screen_after(std::string_view bytes, int columns) {
  Screen screen(columns);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '\x1b') {
      screen.put(bytes[i]);
      continue;
    }
    const std::size_t begin = i;
    while (i < bytes.size() && std::isalpha(static_cast<unsigned char>(bytes[i])) == 0) ++i;
    const std::string_view sequence = bytes.substr(begin, i - begin + 1);
    if (sequence == "\x1b[J")
      screen.erase_below();
    else if (sequence.ends_with('A'))
      screen.up(static_cast<std::size_t>(std::atoi(std::string(sequence.substr(2)).c_str())));
    else if (!sequence.ends_with('m'))
      for (const char c : sequence.substr(1)) screen.put(c);  // shows unknown sequences
  }
  return std::move(screen).lines();
}

}  // namespace qtrain::e2e
