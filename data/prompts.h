#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "data/shapes.h"
#include "data/source/reader.h"

namespace qtrain {

/// A held-out row as a question to the model and the answer it should give.
struct PromptCase {
  Json messages;          ///< the conversation before the answer; null for a plain text prompt
  Json tools;             ///< null: none
  Json template_kwargs;   ///< object: further variables of the chat template
  std::string prompt;     ///< plain text prompt, when messages is null
  std::string reference;  ///< text of the last assistant turn, or the completion
  std::string place;      ///< "file:line"
};

/// One row as a PromptCase; none if it has no answer (text or tokens only, no assistant turn).
std::optional<PromptCase> prompt_case(const RawRows& rows, std::int64_t row, const ShapeRules& rules = {});

}  // namespace qtrain
