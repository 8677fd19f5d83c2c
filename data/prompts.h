#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "data/shapes.h"
#include "data/source/reader.h"
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

/// A question to the model that has no answer.
struct Question {
  Json messages;                         ///< what the chat template gets
  Json tools;                            ///< null: none
  Json template_kwargs;                  ///< object: further variables of the chat template
  std::optional<std::string> text = {};  ///< where the row has one text: what it is without a template

  /// For the chat template; this must outlive it.
  RenderInput input() const;
};

/// A row that asks: `messages`, `conversations` (from/value) or `prompt`, each a list of messages of which an answer at
/// the end is left out, or `prompt` or `text`, a text. Beside them `tools`, `chat_template_kwargs` and `system`, as in
/// training rows. Errors (ErrorKind::input, without a place): none of these; those of read_sample.
Question question_of(const Json& row);

}  // namespace qtrain
