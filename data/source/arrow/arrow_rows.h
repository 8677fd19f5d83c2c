#pragma once
#include "data/source/row_source.h"

namespace qtrain {

/// Rows of an Arrow stream or file. Throws as open_rows does.
RowSourcePtr open_arrow_rows(FileBytesPtr file);

}  // namespace qtrain
