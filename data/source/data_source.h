#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "data/source/columns.h"
#include "data/source/files.h"
#include "data/source/split_slice.h"

namespace qtrain {

/// One source of a mixture: an entry of the config key `datasets`.
struct DataSource {
  std::vector<std::string> files;       ///< files, globs, folders
  std::vector<SplitSlice> splits = {};  ///< one behind the other; none: the part of folders that its use asks for
  ColumnMap columns;
  SharedMaps shared = {};  ///< of `columns`
  std::optional<double> fraction, weight;
};

/// A path, or an object with `path` or `data_files` (of `data_dir`), `split`, `columns` (a list of those to keep),
/// `column_mapping`, `message_property_mappings`, `role_mapping`, `fraction` and `weight`. Of the three mappings it has
/// those that it does not give (not even empty) from `columns`. Errors (ErrorKind::usage, without a place): other keys
/// or types.
DataSource read_data_source(const Json& entry, const ColumnMap& columns);

}  // namespace qtrain
