#pragma once
#include <string>

#include "core/json.h"

namespace qtrain {

/// Columns of a source that are made as a `type` of axolotl says, or what is wrong with it.
struct PromptFormat {
  Json columns = Json::object();  ///< a column_mapping
  std::string problem = {};
};

/// Whether a type says how the fields of a row become a prompt, not only what they are called.
bool has_prompt_format(const Json& type);
/// The prompt is system_format where there is a system prompt (of the row, or system_prompt), then format, or
/// no_input_format where the row has no input.
PromptFormat read_prompt_format(const Json& type);

}  // namespace qtrain
