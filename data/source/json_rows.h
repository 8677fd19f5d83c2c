#pragma once
#include "data/source/row_source.h"

namespace qtrain {

/// Rows of JSON: a list of objects, an object that holds one, or an object a line. Errors as of open_rows.
RowSourcePtr open_json_rows(FileBytesPtr file);

}  // namespace qtrain
