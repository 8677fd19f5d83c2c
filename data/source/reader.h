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

/// Rows of one or several files, located but not parsed. Uncompressed files stay mapped; memory does not grow with what
/// is read of them.
class RawRows {
 public:
  RawRows() = default;
  /// Errors (ErrorKind::input) as of open_rows.
  explicit RawRows(const std::vector<std::filesystem::path>& files);

  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }
  /// "file:line" or "file:row 7", for messages.
  std::string place(std::int64_t row) const;
  /// The parsed row, an object, its columns renamed. Errors (ErrorKind::input) name the place.
  Json parse(std::int64_t row) const;
  /// The files.
  std::vector<RowSourcePtr> sources() const;
  /// The file of a row.
  const RowSource& source_of(std::int64_t row) const;
  /// About as many bytes as the row has in its file.
  std::int64_t bytes(std::int64_t row) const;
  /// Gives back the memory behind the rows [begin, end), which have been read; reading them again is fine.
  void release(std::int64_t begin, std::int64_t end) const;

  /// The rows [begin, end), sharing the files.
  RawRows slice(std::int64_t begin, std::int64_t end) const;
  /// The rows named, in that order, sharing the files. A row may be named more than once.
  RawRows select(const std::vector<std::int64_t>& rows) const;
  /// The same rows under other names of their columns.
  RawRows with_columns(const ColumnMap& columns) const;
  /// All rows of the parts, one part after the other, sharing the files.
  static RawRows concatenated(const std::vector<RawRows>& parts);

 private:
  struct Source {
    RowSourcePtr rows;
    std::shared_ptr<const ColumnMap> columns;  // null: as they are
  };
  struct Row {
    std::uint32_t source, row;
  };

  std::vector<Source> sources_;
  std::vector<Row> rows_;
};

/// Runs `make`, naming `place` in any error that comes out of it.
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

/// Runs `use` on a row of the source, naming the columns that are not read in any error that comes out of it.
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
