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

/// The rows of one file, located when it is opened and parsed on demand. Thread-safe.
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
  /// Parses a row to an object. Throws ErrorKind::input with its place.
  virtual Json parse(std::int64_t row) const = 0;
  /// Approximate size of the row in the file.
  virtual std::int64_t bytes(std::int64_t) const { return kUsualBytes; }
  /// Columns that the rows omit, with their types: "image (binary), when (time)".
  virtual std::string unread_columns() const { return {}; }
  /// Releases the memory of rows first..last if they can be read again.
  virtual void release(std::int64_t, std::int64_t) const {}

 protected:
  static constexpr std::int64_t kUsualBytes = 512;

 private:
  std::string name_;
};

using RowSourcePtr = std::shared_ptr<const RowSource>;

/// How much of a file to read.
enum class FilePart : std::uint8_t {
  all,
  beginning,  ///< only the first rows of large JSON Lines or CSV files; large compressed files are refused
};

/// The extension before that of a compression: ".csv" for "rows.csv.gz".
std::string inner_extension(const std::filesystem::path& file);
/// Whether a file has the name of a plain text file.
bool is_text_file(const std::filesystem::path& file);

/// Opens a file of rows. The format is detected from the first bytes or, for CSV, TSV and plain text, from the name.
/// Throws ErrorKind::input for a missing, empty, non-regular or damaged file.
RowSourcePtr open_rows(const std::filesystem::path& file, FilePart part = FilePart::all);

/// The bytes of a data file without a byte order mark: mapped, or for .gz and .zst decompressed into memory if small,
/// otherwise into an unnamed file in $TMPDIR or /var/tmp.
class FileBytes {
 public:
  explicit FileBytes(const std::filesystem::path& file, FilePart part = FilePart::all);
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  const std::string& name() const { return name_; }
  std::string_view text() const { return text_; }
  /// Whether the text is complete (see FilePart::beginning).
  bool is_whole() const { return is_whole_; }
  /// Releases the memory of a part of the bytes if they are mapped.
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

/// Finds the first of `breaks`, or npos. Throws ErrorKind::stopped on a stop request, since a line may be as long as
/// its file.
struct BreakSearch {
  std::size_t from;
  std::string_view breaks;
};
std::size_t find_break(std::string_view text, const BreakSearch& search);

}  // namespace qtrain
