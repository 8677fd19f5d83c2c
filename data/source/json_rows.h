#pragma once
#include "data/source/row_source.h"

namespace qtrain {

/// Rows of a JSON file: an array of objects, or one object per line. Throws as open_rows does.
RowSourcePtr open_json_rows(FileBytesPtr file);

}  // namespace qtrain
