#pragma once
#include <vector>

#include "data/source/mixture.h"
#include "train/config/config.h"

namespace qtrain {

/// The training rows' sources: dataset_name as one, or those of dataset_mixture.
/// Errors (ErrorKind::usage): entries and maps of columns that are wrong; their place is a key, or empty for entries.
std::vector<DataSource> training_sources(const DataSection& data);

/// The files behind the rows of a part of the data, of each source, before anything is held out. Errors as of
/// resolve_data_files.
SourceFiles data_files(const DataSection& data, Split split);
/// Training or evaluation rows of a config in these files, as the other data_rows.
RawRows data_rows(const Config& config, Split split, const SourceFiles& files);

/// What the rows are, for people: "3 parquet files, 12000 rows of messages". Reads the first row.
std::string describe_rows(const RawRows& rows, const DataSection& data);

}  // namespace qtrain
