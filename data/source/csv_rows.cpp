#include "data/source/csv_rows.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/formats/json_object.h"
#include "core/idx.h"
#include "core/os/stop.h"
#include "data/source/row_source.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr std::size_t kReleasedCsvBytes = std::size_t{1} << 26;  // memory is released in steps of this size

constexpr std::size_t kCsvFieldsPerByte = 64, kFreeCsvFields = std::size_t{1} << 20;

/// Splits CSV text into records like the C parser of pandas.
class CsvScan {
 public:
  CsvScan(const FileBytes& file, char delimiter) : file_(file), text_(file.text()), delimiter_(delimiter) {}

  std::size_t offset() const { return record_offset_; }
  std::uint64_t line() const { return record_line_; }
  const std::vector<std::string>& fields() const { return fields_; }
  void start_at(std::size_t offset, std::uint64_t line) { at_ = offset, line_ = line; }

  /// Reads the next record, skipping blank lines. False at the end.
  bool next() {
    if (!skip_blank_lines()) return false;
    record_offset_ = at_, record_line_ = line_;
    count_ = 0;
    while (read_field()) {
    }
    fields_.resize(count_);
    return !cut_off_;
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  bool is_line_end(char c) const { return c == '\n' || c == '\r'; }
  void pass_line_end() {
    const bool both = text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n';
    at_ += both ? 2 : 1;
    ++line_;
  }

  bool skip_blank_lines() {
    while (!at_end()) {
      std::size_t i = at_;
      while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t') && text_[i] != delimiter_) ++i;
      if (i == text_.size()) return false;
      if (!is_line_end(text_[i])) return true;
      at_ = i;
      pass_line_end();
    }
    return false;
  }

  /// Reads a field; returns whether another field of the record follows.
  bool read_field() {
    if (count_ == fields_.size()) fields_.emplace_back();
    std::string& field = fields_[count_++];
    field.clear();
    if (!at_end() && text_[at_] == '"') read_quoted(field);
    const std::size_t begin = at_;
    while (!at_end() && text_[at_] != delimiter_ && !is_line_end(text_[at_])) ++at_;
    field += text_.substr(begin, at_ - begin);
    if (at_end()) return false;
    if (text_[at_] == delimiter_) {
      ++at_;
      return true;
    }
    pass_line_end();
    return false;
  }

  void read_quoted(std::string& field) {
    for (++at_;;) {
      const std::size_t quote = text_.find('"', at_);
      if (quote == std::string_view::npos && !file_.is_whole()) {
        at_ = text_.size();
        cut_off_ = true;
        return;
      }
      if (quote == std::string_view::npos)
        fail(ErrorKind::input, {.cause = "a quoted field is not closed",
                                .place = file_.name() + ":" + std::to_string(record_line_),
                                .remedy = "Close it with a quote; write a quote inside it twice."});
      const std::string_view part = text_.substr(at_, quote - at_);
      field += part;
      line_ += static_cast<std::uint64_t>(std::count(part.begin(), part.end(), '\n'));
      at_ = quote + 1;
      if (at_end() || text_[at_] != '"') return;
      field += '"';
      ++at_;
    }
  }

  const FileBytes& file_;
  std::string_view text_;
  char delimiter_;
  bool cut_off_ = false;  // the record extends beyond the part of the file that is read
  std::size_t at_ = 0, record_offset_ = 0, count_ = 0;
  std::uint64_t line_ = 1, record_line_ = 1;
  std::vector<std::string> fields_;
};

/// Delimiter of a header: `usual`, or another common delimiter if the header does not contain that.
char delimiter_of(std::string_view text, char usual) {
  const std::size_t begin = std::min(text.find_first_not_of("\r\n"), text.size());
  std::map<char, int> counts;
  bool quoted = false;
  for (const char c : text.substr(begin, text.find_first_of("\r\n", begin) - begin)) {
    if (c == '"') quoted = !quoted;
    if (!quoted) ++counts[c];
  }
  char best = usual;
  for (const char other : {',', ';', '\t', '|'})
    if (counts[usual] == 0 && counts[other] > counts[best]) best = other;
  return best;
}

/// CSV or TSV with a header. All fields are text and empty ones null, so that an answer such as "None" or "2" stays
/// text.
class CsvRows final : public RowSource {
 public:
  CsvRows(FileBytesPtr file, char delimiter)
      : RowSource(file->name()),
        file_(std::move(file)),
        format_(delimiter == '\t' ? "tsv" : "csv"),
        delimiter_(delimiter_of(file_->text(), delimiter)) {
    CsvScan scan(*file_, delimiter_);
    scan.next();  // the file is not blank
    set_header(scan.fields());
    for (std::size_t released = 0; scan.next(); add(scan)) {
      if (scan.offset() - released < kReleasedCsvBytes) continue;
      file_->release(file_->text().substr(released, scan.offset() - released));
      released = scan.offset();
    }
    require_fields();
  }

  std::string_view format() const override { return format_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::string place(std::int64_t row) const override { return place_of_line(rows_.at(idx(row)).line); }

  std::int64_t bytes(std::int64_t row) const override { return static_cast<std::int64_t>(text_of(row, row).size()); }
  void release(std::int64_t first, std::int64_t last) const override { file_->release(text_of(first, last)); }

  Json parse(std::int64_t row) const override {
    CsvScan scan(*file_, delimiter_);
    const Location& at = rows_.at(idx(row));
    scan.start_at(at.offset, at.line);
    scan.next();
    JsonObject out;
    out.reserve(columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string_view field = i < scan.fields().size() ? scan.fields()[i] : std::string_view();
      if (!is_utf8(field))
        fail(ErrorKind::input, {.cause = "column '" + columns_[i] + "' is not UTF-8",
                                .place = place(row),
                                .remedy = "Save the file as UTF-8."});
      out.add(columns_[i], field.empty() ? Json() : Json(field));
    }
    return out.take();
  }

 private:
  struct Location {
    std::uint64_t offset, line;
  };

  /// The bytes of rows first..last, including lines between them.
  std::string_view text_of(std::int64_t first, std::int64_t last) const {
    const std::string_view text = file_->text();
    const std::uint64_t begin = rows_.at(idx(first)).offset;
    return text.substr(begin, (last + 1 < size() ? rows_[idx(last + 1)].offset : text.size()) - begin);
  }
  std::string place_of_line(std::uint64_t line) const { return name() + ":" + std::to_string(line); }

  /// Column names like pandas: "Unnamed: 2" for an empty one, "a.1" for the second "a".
  void set_header(const std::vector<std::string>& names) {
    std::map<std::string, int> seen;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!is_utf8(names[i])) fail(ErrorKind::input, {.cause = "the header is not UTF-8", .place = place_of_line(1)});
      std::string name = names[i].empty() ? "Unnamed: " + std::to_string(i) : names[i];
      const std::string plain = name;
      while (seen.contains(name)) name = plain + "." + std::to_string(++seen[plain]);
      seen[name] = 0;
      columns_.push_back(std::move(name));
    }
  }

  /// Limits rows times columns: every row gets a value per column, so short rows under a long header could far exceed
  /// the file size.
  void require_fields() const {
    if (rows_.size() <= kFreeCsvFields / columns_.size() + file_->text().size() / columns_.size() * kCsvFieldsPerByte)
      return;
    fail(ErrorKind::input, {.cause = std::to_string(rows_.size()) + " rows of " + std::to_string(columns_.size()) +
                                     " columns would have more than " + std::to_string(kCsvFieldsPerByte) +
                                     " fields for each byte of the file; most rows are too short",
                            .place = name(),
                            .remedy = "Remove columns that the rows do not have from the header."});
  }

  void add(const CsvScan& scan) {
    const std::vector<std::string>& fields = scan.fields();
    if (fields.size() > columns_.size())
      fail(ErrorKind::input, {.cause = "the row has " + std::to_string(fields.size()) + " fields, but the header has " +
                                       std::to_string(columns_.size()),
                              .place = place_of_line(scan.line()),
                              .remedy = "Quote fields that contain the delimiter, a quote or a line break."});
    throw_if_stopped();
    rows_.push_back({scan.offset(), scan.line()});
  }

  FileBytesPtr file_;
  std::string_view format_;
  char delimiter_;
  std::vector<std::string> columns_;
  std::vector<Location> rows_;
};

}  // namespace

RowSourcePtr open_csv_rows(FileBytesPtr file, char delimiter) {
  return std::make_shared<CsvRows>(std::move(file), delimiter);
}

}  // namespace qtrain
