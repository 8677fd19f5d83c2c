#include "data/source/text_rows.h"

#include <string>
#include <utility>
#include <vector>

#include "core/idx.h"
#include "data/source/row_source.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

/// Plain text with one row per line, including empty ones, like the text loader of `datasets`: lines end at \n, \r\n or
/// \r.
class TextRows final : public RowSource {
 public:
  explicit TextRows(FileBytesPtr file) : RowSource(file->name()), file_(std::move(file)) {
    const std::string_view text = file_->text();
    for (std::size_t begin = 0, released = 0; begin < text.size();) {
      begins_.push_back(begin);
      const std::size_t end = find_break(text, {.from = begin, .breaks = "\r\n"});
      if (end == std::string_view::npos) break;
      begin = end + (text.substr(end, 2) == "\r\n" ? 2 : 1);
      if (begin - released < kReleasedTextBytes) continue;
      file_->release(text.substr(released, begin - released));
      released = begin;
    }
    refuse_json();
  }

  std::string_view format() const override { return "text"; }
  std::int64_t size() const override { return static_cast<std::int64_t>(begins_.size()); }
  std::string place(std::int64_t row) const override { return name() + ":" + std::to_string(row + 1); }
  std::int64_t bytes(std::int64_t row) const override { return static_cast<std::int64_t>(text_of(row, row).size()); }
  void release(std::int64_t first, std::int64_t last) const override { file_->release(text_of(first, last)); }

  Json parse(std::int64_t row) const override {
    std::string_view line = text_of(row, row);
    line = line.substr(0, line.find_first_of("\r\n"));
    if (!is_utf8(line))
      fail(ErrorKind::input,
           {.cause = "the line is not UTF-8", .place = place(row), .remedy = "Save the file as UTF-8."});
    return {{"text", line}};
  }

 private:
  static constexpr std::size_t kReleasedTextBytes = std::size_t{1} << 26;

  /// The bytes of rows first..last, including their line ends.
  std::string_view text_of(std::int64_t first, std::int64_t last) const {
    const std::string_view text = file_->text();
    const std::uint64_t begin = begins_.at(idx(first));
    return text.substr(begin, (last + 1 < size() ? begins_[idx(last + 1)] : text.size()) - begin);
  }

  /// Refuses JSON Lines under this extension, which would train on braces and quotes.
  void refuse_json() const {
    const std::string_view first = text_of(0, 0);
    if (!first.starts_with('{') || !Json::accept(first)) return;
    fail(ErrorKind::input, {.cause = "the file is named as plain text, but its lines are JSON objects",
                            .place = place(0),
                            .remedy = "Rename it to .jsonl."});
  }

  FileBytesPtr file_;
  std::vector<std::uint64_t> begins_;
};

}  // namespace

RowSourcePtr open_text_rows(FileBytesPtr file) {
  return std::make_shared<TextRows>(std::move(file));
}

}  // namespace qtrain
