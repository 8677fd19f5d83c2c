#pragma once
#include <string>

#include "core/formats/json.h"
#include "data/shapes.h"

/// Of conversations the first message alone, as LLaMA-Factory pre-trains on them.
namespace qtrain {

/// Reads a row whose answer does not count, and may be null.
Sample read_prompt(const Json& row, const ShapeRules& rules);

/// The text of the first message that is not the system's, of the prompt of a text_pair all of it. An input error,
/// without a place, where there is no such message before the first answer, or it holds no text.
std::string first_prompt(const Sample& sample);

}  // namespace qtrain
