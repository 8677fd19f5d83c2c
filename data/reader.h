#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/json.h"

namespace qtrain {

/// Which part of a data set is wanted: decides which files of a folder are taken when their names say `train`,
/// `validation` (also valid, val, dev, eval) or `test`.
enum class Split : std::uint8_t { train, evaluation };

/// The data files that a list of files, globs (*, ?, [a-z], ** for folders) and folders stands for, in the order of the
/// list, each pattern's matches sorted by name, none twice. A folder stands for its .json, .jsonl, .ndjson files (also
/// .gz, .zst), and if it has none for those of the folders below it.
/// Errors (ErrorKind::input): an entry that matches nothing, formats that are recognised but not read here.
std::vector<std::filesystem::path> resolve_data_files(const std::vector<std::string>& entries, Split split);

/// The rows of JSON Lines files and of JSON array files, located but not parsed; files stay mapped (compressed ones are
/// held decompressed). A line ends at \n only; empty lines and a byte order mark are skipped.
class RawRows {
 public:
  RawRows() = default;
  /// Errors (ErrorKind::input): missing or empty file, not a regular file, damaged compression, no JSON objects.
  explicit RawRows(const std::vector<std::filesystem::path>& files);

  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }
  /// The row's JSON text, exactly as in the file.
  std::string_view text(std::int64_t row) const;
  /// "file:line", for messages.
  std::string place(std::int64_t row) const;
  /// The parsed row, an object. Errors (ErrorKind::input) name file and line.
  Json parse(std::int64_t row) const;

  /// The rows [begin, end), sharing the files.
  RawRows slice(std::int64_t begin, std::int64_t end) const;
  /// The rows named, in that order, sharing the files.
  RawRows select(const std::vector<std::int64_t>& rows) const;

 private:
  struct Source {
    std::string name;
    MappedFile mapped;
    std::string inflated;
    std::string_view text;
  };
  struct Location {
    std::uint32_t source;
    std::uint32_t line;  // from 1
    std::uint64_t offset;
    std::uint64_t size;
  };
  void locate_lines(std::uint32_t source);
  void locate_elements(std::uint32_t source);

  std::vector<std::shared_ptr<const Source>> sources_;
  std::vector<Location> rows_;
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

}  // namespace qtrain
