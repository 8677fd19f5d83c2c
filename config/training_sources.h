#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/source/mixture.h"

namespace qtrain {

/// How column_mapping and its kin name the columns of rows. Errors as of training_sources.
ColumnMap columns_of(const DataSection& data);

/// What the value of `key` says of splits. Errors (ErrorKind::usage) at the key.
std::vector<SplitSlice> named_splits(const char* key, const std::optional<std::string>& text);

/// The training rows' sources: dataset_name as one, or those of dataset_mixture.
/// Errors (ErrorKind::usage): entries and maps of columns that are wrong; their place is a key, or empty for entries.
std::vector<DataSource> training_sources(const DataSection& data);

}  // namespace qtrain
