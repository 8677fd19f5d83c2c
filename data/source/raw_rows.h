#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/json.h"
#include "data/source/columns.h"
#include "data/source/files.h"
#include "data/source/row_source.h"

namespace qtrain {

/// Rows of one or more files, located but not parsed. Uncompressed files stay mapped; memory use does not grow with
/// what is read.
class RawRows {
 public:
  RawRows() = default;
  /// Throws ErrorKind::input as open_rows does.
  explicit RawRows(const std::vector<std::filesystem::path>& files);

  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }
  /// "file:line" or "file:row 7", for messages.
  std::string place(std::int64_t row) const;
  /// Parses a row to an object with renamed columns. Throws ErrorKind::input with its place.
  Json parse(std::int64_t row) const;
  /// The files.
  std::vector<RowSourcePtr> sources() const;
  /// The file of a row.
  const RowSource& source_of(std::int64_t row) const;
  /// Approximate size of the row in its file.
  std::int64_t bytes(std::int64_t row) const;
  /// Releases the memory of rows [begin, end) after reading; they may be read again.
  void release(std::int64_t begin, std::int64_t end) const;

  /// Rows [begin, end), sharing the files.
  RawRows slice(std::int64_t begin, std::int64_t end) const;
  /// The given rows, in that order, sharing the files. Rows may be repeated.
  RawRows select(const std::vector<std::int64_t>& rows) const;
  /// The same rows with renamed columns.
  RawRows with_columns(const ColumnMap& columns) const;
  /// The rows of all parts in sequence, sharing the files.
  static RawRows concatenated(const std::vector<RawRows>& parts);

 private:
  struct Source {
    RowSourcePtr rows;
    std::shared_ptr<const ColumnMap> columns;  // null: no renaming
  };
  struct Row {
    std::uint32_t source, row;
  };

  std::vector<Source> sources_;
  std::vector<Row> rows_;
};

/// Runs `make`, adding `place` to any error that it throws.
template <class F>
auto with_place(const std::string& place, F&& make) {
  try {
    return make();
  } catch (const Error& e) {
    ErrorText text = e.text();
    if (!text.place.starts_with(place)) text.place = text.place.empty() ? place : place + ", " + text.place;
    throw Error(e.kind(), std::move(text));
  }
}

/// Runs `use` on a row of the source, adding the columns that are not read to any error that it throws.
template <class F>
auto naming_unread(const RowSource& source, F&& use) {
  try {
    return use();
  } catch (const Error& e) {
    const std::string unread = source.unread_columns();
    if (unread.empty()) throw;
    ErrorText text = e.text();
    text.cause += "; columns that are not read: " + unread;
    throw Error(e.kind(), std::move(text));
  }
}

}  // namespace qtrain
