#pragma once
#include <string>

#include "config/config.h"
#include "data/dataset.h"
#include "data/source/mixture.h"

namespace qtrain {

/// Options for preparing the rows of a config. Preparation throws ErrorKind::stopped when a stop is requested.
DatasetOptions dataset_options(const Config& config, Split split);
/// Training or evaluation rows of a config, after applying eval_split; none if there is nothing to evaluate on.
RawRows data_rows(const Config& config, Split split);
/// The files of each source of a split, before anything is held out. Throws as resolve_data_files does.
SourceFiles data_files(const DataSection& data, Split split);
/// Like the overload above, with rows from these files.
RawRows data_rows(const Config& config, Split split, const SourceFiles& files);

/// A description of the rows for the log: "3 parquet files, 12000 rows of messages". Reads the first row.
std::string describe_rows(const RawRows& rows, const DataSection& data);

}  // namespace qtrain
