#include "data/first_prompt.h"

#include <algorithm>

#include "data/foreign_rows.h"
#include "text/template/message.h"

namespace qtrain {

Sample read_prompt(const Json& row, const ShapeRules& rules) {
  if (missing_answer(row, rules).empty()) return read_sample(row, rules);
  Json answered = row;
  for (const char* answer : {"output", "completion"})
    if (answered.contains(answer) && answered.at(answer).is_null()) answered[answer] = "";
  return read_sample(answered, rules);
}

std::string first_prompt(const Sample& sample) {
  if (sample.shape == RowShape::text_pair) return sample.prompt;
  const Json messages = conversation_of(sample);
  const auto first = std::ranges::find_if(messages, [](const Json& m) { return m.value("role", Json()) != "system"; });
  if (first == messages.end() || is_assistant(*first))
    bad_row("the row has no question before its first answer, but only the first question is learned",
            "Remove the row.");
  if (const Json content = first->value("content", Json()); !content.is_string() && !content.is_array())
    bad_row("the first question of the row is not text", "Correct it, or remove the row.");
  return content_text(*first);
}

}  // namespace qtrain
