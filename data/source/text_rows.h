#pragma once
#include "data/source/row_source.h"

namespace qtrain {

/// Rows of a plain text file. Throws as open_rows does.
RowSourcePtr open_text_rows(FileBytesPtr file);

}  // namespace qtrain
