#pragma once
#include "core/formats/json.h"
#include "data/shapes.h"

namespace qtrain {

/// Reads a row of tokens: input_ids, and labels, masks and position_ids where it has them.
/// Errors (ErrorKind::input, without a place): other types, columns of different lengths, no token ids.
void read_token_columns(const Json& row, const ShapeRules& rules, Sample& sample);

}  // namespace qtrain
