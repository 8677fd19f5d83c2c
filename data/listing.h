#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/row_shapes.h"

namespace qtrain {

/// A data file, or a folder saved by `datasets`.
struct ListedData {
  std::filesystem::path path;
  std::string format;                ///< "jsonl", "csv", "parquet", "arrow", ...; empty if unknown
  std::string shape;                 ///< as shape_name; empty if unknown
  std::vector<std::string> columns;  ///< columns of the first row
  std::int64_t rows = 0;
  bool estimated = false;  ///< `rows` is extrapolated from the beginning of the file
  std::uint64_t bytes = 0;
  std::string problem;  ///< why it cannot be read or its first row cannot be used; empty if fine
};

/// Lists the training data in a folder and its subfolders (each file once, even through links), sorted by path; or the
/// one file. Skips JSON files without rows; reads only the beginning of large files. Throws ErrorKind::input if there
/// is no such folder.
std::vector<ListedData> list_data(const std::filesystem::path& path, const ShapeRules& rules);

}  // namespace qtrain
