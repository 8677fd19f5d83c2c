#pragma once
#include "data/source/row_source.h"

namespace qtrain {

/// Rows of a CSV or TSV file with a header. Throws as open_rows does.
RowSourcePtr open_csv_rows(FileBytesPtr file, char delimiter);

}  // namespace qtrain
