#pragma once
#include "core/formats/json.h"
#include "data/row_shapes.h"

namespace qtrain {

/// Reads a row of tokens: input_ids and, if present, labels, masks and position_ids. Throws ErrorKind::input (without a
/// place) for wrong types, columns of different lengths, and invalid token ids.
void read_token_columns(const Json& row, const ShapeRules& rules, Sample& sample);

}  // namespace qtrain
