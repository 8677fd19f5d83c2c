#pragma once
#include "data/source/row_source.h"

namespace qtrain {

/// Rows of plain text. Errors as of open_rows.
RowSourcePtr open_text_rows(FileBytesPtr file);

}  // namespace qtrain
