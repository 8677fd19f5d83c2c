#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/shapes.h"

namespace qtrain {

/// A file of rows, or a folder that `datasets` saved.
struct ListedData {
  std::filesystem::path path;
  std::string format;                ///< "jsonl", "csv", "parquet", "arrow", ...; empty where it could not be told
  std::string shape;                 ///< as shape_name; empty: none that is known
  std::vector<std::string> columns;  ///< of the first row
  std::int64_t rows = 0;
  bool estimated = false;  ///< rows are reckoned from the beginning of the file
  std::uint64_t bytes = 0;
  std::string problem;  ///< why it cannot be read, or its first row is of no use; empty: fine
};

/// What there is to train on in a folder and those below it (each once, whatever links lead to it), sorted by path; or
/// the one file. JSON files that hold no rows are passed over; large ones are only begun.
/// Errors (ErrorKind::input): no such folder.
std::vector<ListedData> list_data(const std::filesystem::path& path, const ShapeRules& rules);

}  // namespace qtrain
