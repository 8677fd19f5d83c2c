#pragma once
#include "data/source/row_source.h"

namespace qtrain {

/// Rows of CSV or TSV below a header. Errors as of open_rows.
RowSourcePtr open_csv_rows(FileBytesPtr file, char delimiter);

}  // namespace qtrain
