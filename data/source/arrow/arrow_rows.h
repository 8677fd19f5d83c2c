#pragma once
#include "data/source/row_source.h"

namespace qtrain {

/// Rows of an Arrow stream or file. Errors as of open_rows.
RowSourcePtr open_arrow_rows(FileBytesPtr file);

}  // namespace qtrain
