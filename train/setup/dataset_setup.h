#pragma once
#include <string>

#include "config/config.h"
#include "data/dataset.h"
#include "data/source/mixture.h"

namespace qtrain {

/// How the rows of a config are prepared. Preparing them ends with ErrorKind::stopped when a stop is asked for.
DatasetOptions dataset_options(const Config& config, Split split);
/// Training or evaluation rows of a config, eval_split taken into account; none where there is nothing to evaluate on.
RawRows data_rows(const Config& config, Split split);
/// The files behind the rows of a part of the data, of each source, before anything is held out. Errors as of
/// resolve_data_files.
SourceFiles data_files(const DataSection& data, Split split);
/// Training or evaluation rows of a config in these files, as the other data_rows.
RawRows data_rows(const Config& config, Split split, const SourceFiles& files);

/// What the rows are, for people: "3 parquet files, 12000 rows of messages". Reads the first row.
std::string describe_rows(const RawRows& rows, const DataSection& data);

}  // namespace qtrain
