#include "data/source/json_rows.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/idx.h"
#include "core/os/stop.h"
#include "data/source/doubtful_row.h"
#include "data/source/row_source.h"

namespace qtrain {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr const char* kRowRemedy =
    "Each line must be one complete JSON object; put JSON that spans lines into an array: [{...}, {...}].";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// Iterates over the elements of a JSON array without parsing them, counting lines.
class ArrayScan {
 public:
  ArrayScan(std::string_view text, const std::string& name) : text_(text), name_(name) {
    skip_space();
    ++at_;  // the bracket, seen by the caller
  }

  struct Element {
    std::size_t begin, size;
    std::uint64_t line;
  };

  /// Finds the next element; false at the closing bracket.
  bool next(Element& element) {
    skip_space();
    if (at_ >= text_.size()) broken("the array is not closed");
    if (text_[at_] == ']' && first_) return close();
    const std::size_t begin = at_;
    const std::uint64_t line = line_;
    skip_value();
    const std::string_view value = trimmed(text_.substr(begin, at_ - begin));
    if (value.empty()) broken("an element is missing");
    element = {begin, value.size(), line};
    first_ = false;
    if (text_[at_] == ',') {
      ++at_;
      skip_space();
      if (at_ < text_.size() && text_[at_] == ']') broken("a comma before the closing bracket");
    } else {
      closing_ = true;
    }
    return true;
  }
  bool at_end() const { return closing_; }

  /// Skips the closing bracket; only white space may follow.
  bool close() {
    ++at_;
    skip_space();
    if (at_ < text_.size()) broken("text after the array");
    closing_ = true;
    return false;
  }

 private:
  [[noreturn]] void broken(const char* why) const {
    fail(ErrorKind::input, {.cause = why, .place = name_ + ":" + std::to_string(line_), .remedy = "Check the JSON."});
  }
  void step() { line_ += text_[at_++] == '\n'; }
  void skip_space() {
    while (at_ < text_.size() && kSpace.find(text_[at_]) != std::string_view::npos) step();
  }
  void skip_string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; step())
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
    if (at_ >= text_.size()) broken("a string is not closed");
    ++at_;
  }
  /// Skips to the comma or bracket that ends the element.
  void skip_value() {
    for (std::int64_t depth = 0; at_ < text_.size();) {
      const char c = text_[at_];
      if (c == '"') {
        skip_string();
        continue;
      }
      if (depth == 0 && (c == ',' || c == ']')) return;
      depth += (c == '{' || c == '[') - (c == '}' || c == ']');
      if (depth < 0) broken("brackets do not match");
      step();
    }
    broken("the array is not closed");
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::uint64_t line_ = 1;
  bool first_ = true;
  bool closing_ = false;
};

/// JSON Lines, or the elements of one array. Lines end only at \n; empty lines are skipped.
class JsonRows final : public RowSource {
 public:
  explicit JsonRows(FileBytesPtr file) : RowSource(file->name()), file_(std::move(file)) {
    const std::string_view text = file_->text();
    is_array_ = text[text.find_first_not_of(kSpace)] == '[';
    is_array_ ? locate_elements(text) : locate_lines(text);
  }

  std::string_view format() const override { return is_array_ ? "json" : "jsonl"; }
  std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::string place(std::int64_t row) const override { return name() + ":" + std::to_string(rows_.at(idx(row)).line); }

  Json parse(std::int64_t row) const override {
    const Location& at = rows_.at(idx(row));
    const std::string_view json = file_->text().substr(at.offset, at.size);
    if (!json.starts_with('{'))
      fail(ErrorKind::input, {.cause = "the row is not a JSON object", .place = place(row), .remedy = kRowRemedy});
    try {
      return parse_json(json, place(row));
    } catch (const Error& e) {
      if (std::optional<Json> doubtful = doubtful_row(json, place(row))) return std::move(*doubtful);
      ErrorText text = e.text();
      if (text.remedy.empty()) text.remedy = kRowRemedy;
      throw Error(e.kind(), std::move(text));
    }
  }

  std::int64_t bytes(std::int64_t row) const override { return rows_.at(idx(row)).size; }
  void release(std::int64_t first, std::int64_t last) const override {
    const std::uint64_t begin = rows_.at(idx(first)).offset,
                        end = rows_.at(idx(last)).offset + rows_.at(idx(last)).size;
    file_->release(file_->text().substr(begin, end - begin));
  }

 private:
  static constexpr std::size_t kReleasedBytes = std::size_t{1} << 26;
  struct Location {
    std::uint64_t offset;
    std::uint32_t size;
    std::uint32_t line;  // from 1
  };

  void add(std::uint64_t offset, std::size_t size, std::uint64_t line) {
    constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
    if (size > kMax || line > kMax)
      fail(ErrorKind::input, {.cause = "a row over 4 GiB, or more than 4294967295 lines",
                              .place = name() + ":" + std::to_string(line),
                              .remedy = "Split it."});
    throw_if_stopped();
    rows_.push_back({offset, static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(line)});
  }

  void locate_lines(std::string_view text) {
    std::uint64_t line = 1;
    for (std::size_t begin = 0, released = 0; begin < text.size(); ++line) {
      const std::size_t stop = std::min(find_break(text, {.from = begin, .breaks = "\n"}), text.size());
      const std::string_view row = trimmed(text.substr(begin, stop - begin));
      if (!row.empty()) add(static_cast<std::uint64_t>(row.data() - text.data()), row.size(), line);
      begin = stop + 1;
      if (begin - released < kReleasedBytes) continue;
      file_->release(text.substr(released, begin - released));
      released = begin;
    }
  }

  void locate_elements(std::string_view text) {
    ArrayScan scan(text, name());
    for (ArrayScan::Element e{}; scan.next(e);) {
      add(e.begin, e.size, e.line);
      if (scan.at_end()) {
        scan.close();
        break;
      }
    }
  }

  FileBytesPtr file_;
  std::vector<Location> rows_;
  bool is_array_ = false;
};

}  // namespace

RowSourcePtr open_json_rows(FileBytesPtr file) {
  return std::make_shared<JsonRows>(std::move(file));
}

}  // namespace qtrain
