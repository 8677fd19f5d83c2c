#pragma once
#include "data/source/row_source.h"

namespace qtrain {

/// Rows of a Parquet file. Errors as of open_rows.
RowSourcePtr open_parquet_rows(FileBytesPtr file);

}  // namespace qtrain
