#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "data/row_shapes.h"
#include "data/source/raw_rows.h"
#include "text/template/chat_template.h"

namespace qtrain {

/// A held-out row, split into a question for the model and the expected answer.
struct PromptCase {
  Json messages;          ///< the conversation before the answer; null for a plain text prompt
  Json tools;             ///< null: none
  Json template_kwargs;   ///< object: extra variables for the chat template
  std::string prompt;     ///< plain text prompt, if messages is null
  std::string reference;  ///< text of the last assistant turn, or the completion
  std::string place;      ///< "file:line"
};

/// Converts a row to a PromptCase; none if it has no answer (only text or tokens, no assistant turn).
std::optional<PromptCase> prompt_case(const RawRows& rows, std::int64_t row, const ShapeRules& rules = {});

/// A question to the model, without an answer.
struct Question {
  Json messages;                         ///< messages for the chat template
  Json tools;                            ///< null: none
  Json template_kwargs;                  ///< object: extra variables for the chat template
  std::optional<std::string> text = {};  ///< the row's text, if it is not a list of messages

  /// Input for the chat template; this object must outlive it.
  RenderInput input() const;
};

/// Reads a question from a row: `messages`, `conversations` (from/value) or `prompt` as a list of messages, without an
/// answer at the end, or `prompt` or `text` as a string. The row may also have `tools`, `chat_template_kwargs` and
/// `system`, as in training rows. Throws ErrorKind::input, without a place, if none of these is there and as
/// read_sample does.
Question question_of(const Json& row);

}  // namespace qtrain
