#pragma once
#include <string>

#include "core/formats/json.h"
#include "data/row_shapes.h"

/// Reduces conversations to their first message, as LLaMA-Factory does for pre-training.
namespace qtrain {

/// Reads a row whose answer is ignored and may be null.
Sample read_prompt(const Json& row, const ShapeRules& rules);

/// The text of the first message that is not a system message; for a text_pair, the whole prompt. Throws
/// ErrorKind::input, without a place, if there is no such message before the first answer or it contains no text.
std::string first_prompt(const Sample& sample);

}  // namespace qtrain
