#pragma once
#include <cstdint>
#include <map>
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
  std::vector<SplitSlice> splits = {};  ///< concatenated; none: the split for its use
  ColumnMap columns;
  SharedMaps shared = {};  ///< which parts of `columns` are shared
  std::optional<double> fraction, weight;
  std::optional<double> share;                  ///< of its own rows, in (0, 1]; see chosen_share
  std::uint64_t share_seed = 0;                 ///< for the choice of these rows
  std::optional<std::string> config = {};       ///< of a data set that has several ("socratic")
  std::map<std::string, CardFiles> cards = {};  ///< as in WantedSplit
};

/// Reads a path, or an object with `path` or `data_files` (in `data_dir`), `name` (a config), `split`, `columns` (a
/// list of columns to keep), `column_mapping`, `message_property_mappings`, `role_mapping`, `fraction`, `weight`,
/// `share` and `share_seed`. Mappings that are absent (not just empty) come from `columns`. Throws ErrorKind::usage
/// (without a place) for other keys or types.
DataSource read_data_source(const Json& entry, const ColumnMap& columns);

}  // namespace qtrain
