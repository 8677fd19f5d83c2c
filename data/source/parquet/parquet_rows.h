#pragma once
#include "data/source/row_source.h"

namespace qtrain {

/// Rows of a Parquet file. Throws as open_rows does.
RowSourcePtr open_parquet_rows(FileBytesPtr file);

}  // namespace qtrain
