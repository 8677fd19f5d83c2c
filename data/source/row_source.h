#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/formats/json.h"
#include "core/os/file.h"
#include "core/os/spool.h"

namespace qtrain {

/// The rows of one file, located when it is opened and made on demand. Safe to use from several threads.
class RowSource {
 public:
  explicit RowSource(std::string name) : name_(std::move(name)) {}
  virtual ~RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  /// The file, as the user named it.
  const std::string& name() const { return name_; }
  virtual std::string_view format() const = 0;  ///< "jsonl", "csv", "text", ...
  virtual std::int64_t size() const = 0;
  /// "file:line", or "file:row 7" for formats without lines.
  virtual std::string place(std::int64_t row) const = 0;
  /// The row, an object. Errors (ErrorKind::input) name the place.
  virtual Json parse(std::int64_t row) const = 0;
  /// About as many bytes as the row has in the file.
  virtual std::int64_t bytes(std::int64_t) const { return kUsualBytes; }
  /// Columns that the rows leave out, with their types: "image (binary), when (time)".
  virtual std::string unread_columns() const { return {}; }
  /// Gives back the memory of the file behind the rows first..last, where it can be read again.
  virtual void release(std::int64_t, std::int64_t) const {}

 protected:
  static constexpr std::int64_t kUsualBytes = 512;

 private:
  std::string name_;
};

using RowSourcePtr = std::shared_ptr<const RowSource>;

/// How much of a file is looked at.
enum class FilePart : std::uint8_t {
  all,
  beginning,  ///< of large JSON Lines or CSV files the first rows; large compressed files are refused
};

/// The ending of a name without that of the compression: ".csv" of "rows.csv.gz".
std::string inner_extension(const std::filesystem::path& file);
/// Whether a file is named as one of plain text.
bool is_text_file(const std::filesystem::path& file);

/// Opens a file of rows; what it is shows in its first bytes or, for CSV, TSV and plain text, in its name.
/// Errors (ErrorKind::input): missing or empty file, not a regular file, damaged.
RowSourcePtr open_rows(const std::filesystem::path& file, FilePart part = FilePart::all);

/// The bytes of a data file, without a byte order mark: mapped, or decompressed where they were .gz or .zst, then in
/// memory while they are few and in a file without a name in $TMPDIR or /var/tmp else.
class FileBytes {
 public:
  explicit FileBytes(const std::filesystem::path& file, FilePart part = FilePart::all);
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  const std::string& name() const { return name_; }
  std::string_view text() const { return text_; }
  /// Whether nothing is left out (FilePart::beginning).
  bool is_whole() const { return is_whole_; }
  /// Gives back the memory behind a part of them, if they are mapped.
  void release(std::string_view part) const { mapped_.release(std::as_bytes(std::span(part))); }

 private:
  void leave_beginning();

  std::string name_;
  MappedFile mapped_;
  bool is_whole_ = true;
  Spool inflated_;
  std::string_view text_;
};

using FileBytesPtr = std::shared_ptr<const FileBytes>;

/// Where one of `breaks` comes first; npos: nowhere. A stop ends the search (ErrorKind::stopped): a line may be as long
/// as its file.
struct BreakSearch {
  std::size_t from;
  std::string_view breaks;
};
std::size_t find_break(std::string_view text, const BreakSearch& search);

}  // namespace qtrain
