#include "data/reader.h"

#include <cstring>
#include <limits>
#include <utility>

#include "data/inflate.h"

namespace qtrain {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr const char* kRowRemedy =
    "Each line must hold one whole JSON object; JSON that spans lines belongs into an array: [{...}, {...}].";

std::string_view without_mark(std::string_view text, const std::string& name) {
  if (text.starts_with("\xef\xbb\xbf")) return text.substr(3);
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    fail(ErrorKind::input, {.cause = "the file is UTF-16", .place = name, .remedy = "Save it as UTF-8."});
  return text;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// Walks over the elements of a JSON array without parsing them, counting lines.
class ArrayScan {
 public:
  ArrayScan(std::string_view text, const std::string& name) : text_(text), name_(name) {
    skip_space();
    ++at_;  // the bracket, which the caller has seen
  }

  struct Element {
    std::size_t begin, size;
    std::uint64_t line;
  };

  /// The next element; false at the closing bracket.
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

  /// Passes the closing bracket; nothing but white space may follow.
  bool close() {
    ++at_;
    skip_space();
    if (at_ < text_.size()) broken("text behind the array");
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
  /// Up to the comma or bracket that ends the element.
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

}  // namespace

RawRows::RawRows(const std::vector<std::filesystem::path>& files) {
  for (const std::filesystem::path& file : files) {
    auto source = std::make_shared<Source>();
    source->name = file.string();
    source->mapped = MappedFile(file);
    source->text = source->mapped.text();
    if (is_compressed(source->text)) {
      source->inflated = inflate_bytes(source->text, source->name);
      source->mapped = MappedFile();
      source->text = source->inflated;
    }
    source->text = without_mark(source->text, source->name);
    const std::string_view text = source->text;
    const std::size_t first = text.find_first_not_of(kSpace);
    if (first == std::string_view::npos)
      fail(ErrorKind::input, {.cause = "the file is empty", .place = source->name, .remedy = "Give it rows."});
    sources_.push_back(std::move(source));
    const auto index = static_cast<std::uint32_t>(sources_.size() - 1);
    text[first] == '[' ? locate_elements(index) : locate_lines(index);
  }
}

void RawRows::locate_lines(std::uint32_t source) {
  const std::string_view text = sources_[source]->text;
  std::uint32_t line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const void* end = std::memchr(text.data() + begin, '\n', text.size() - begin);
    const std::size_t stop = end ? static_cast<std::size_t>(static_cast<const char*>(end) - text.data()) : text.size();
    const std::string_view row = trimmed(text.substr(begin, stop - begin));
    if (!row.empty()) rows_.push_back({source, line, static_cast<std::uint64_t>(row.data() - text.data()), row.size()});
    begin = stop + 1;
  }
}

void RawRows::locate_elements(std::uint32_t source) {
  ArrayScan scan(sources_[source]->text, sources_[source]->name);
  for (ArrayScan::Element e{}; scan.next(e);) {
    rows_.push_back({source, static_cast<std::uint32_t>(e.line), e.begin, e.size});
    if (scan.at_end()) {
      scan.close();
      break;
    }
  }
}

std::string_view RawRows::text(std::int64_t row) const {
  const Location& at = rows_.at(static_cast<std::size_t>(row));
  return sources_[at.source]->text.substr(at.offset, at.size);
}

std::string RawRows::place(std::int64_t row) const {
  const Location& at = rows_.at(static_cast<std::size_t>(row));
  return sources_[at.source]->name + ":" + std::to_string(at.line);
}

Json RawRows::parse(std::int64_t row) const {
  const std::string_view json = text(row);
  if (!json.starts_with('{'))
    fail(ErrorKind::input, {.cause = "the row is no JSON object", .place = place(row), .remedy = kRowRemedy});
  try {
    return parse_json(json, place(row));
  } catch (const Error& e) {
    ErrorText text = e.text();
    if (text.remedy.empty()) text.remedy = kRowRemedy;
    throw Error(e.kind(), std::move(text));
  }
}

RawRows RawRows::slice(std::int64_t begin, std::int64_t end) const {
  check(begin >= 0 && begin <= end && end <= size(), "slice of rows out of range");
  RawRows part;
  part.sources_ = sources_;
  part.rows_.assign(rows_.begin() + begin, rows_.begin() + end);
  return part;
}

RawRows RawRows::select(const std::vector<std::int64_t>& rows) const {
  RawRows part;
  part.sources_ = sources_;
  part.rows_.reserve(rows.size());
  for (const std::int64_t row : rows) part.rows_.push_back(rows_.at(static_cast<std::size_t>(row)));
  return part;
}

}  // namespace qtrain
