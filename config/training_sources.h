#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/source/mixture.h"

namespace qtrain {

/// The column names from column_mapping and related keys. Throws as training_sources does.
ColumnMap columns_of(const DataSection& data);

/// Parses the split in the value of `key`. Throws ErrorKind::usage with the key as its place.
std::vector<SplitSlice> named_splits(const char* key, const std::optional<std::string>& text);

/// The sources of the training rows: dataset_name, or those of dataset_mixture.
/// Throws ErrorKind::usage for invalid entries and column maps; the place is a key, or empty for entries.
std::vector<DataSource> training_sources(const DataSection& data);

}  // namespace qtrain
