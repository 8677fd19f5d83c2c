#include "data/prompts.h"

#include <utility>

#include "data/row_shapes.h"
#include "text/template/message.h"

namespace qtrain {
namespace {

/// Cuts the conversation before its last assistant turn and returns that answer; none if there is none.
std::optional<std::string> take_last_answer(Json& messages) {
  for (std::size_t i = messages.size(); i-- > 0;)
    if (is_assistant(messages[i])) {
      std::string answer = content_text(messages[i]);
      messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(i), messages.end());
      return answer;
    }
  return std::nullopt;
}

/// The list of messages of a row. If the row has a string instead, it is the only message and is put into `text`.
Json asked_messages(const Json& row, std::optional<std::string>& text) {
  for (const char* key : {"messages", "conversations", "prompt"})
    if (row.contains(key) && row.at(key).is_array()) return row.at(key);
  for (const char* key : {"prompt", "text"})
    if (row.contains(key) && row.at(key).is_string()) {
      text = row.at(key).get<std::string>();
      return Json::array({{{"role", "user"}, {"content", *text}}});
    }
  fail(ErrorKind::input, {.cause = "the row has no \"messages\", \"conversations\", \"prompt\" or \"text\""});
}

}  // namespace

RenderInput Question::input() const {
  return {.messages = &messages,
          .tools = tools.is_null() ? nullptr : &tools,
          .add_generation_prompt = true,
          .extra = &template_kwargs};
}

Question question_of(const Json& row) {
  Question question;
  Json talk{{"messages", asked_messages(row, question.text)}};
  for (const char* beside : {"tools", "chat_template_kwargs", "system"})
    if (row.contains(beside)) talk[beside] = row.at(beside);
  Sample sample = read_sample(talk, {});
  if (is_assistant(sample.messages.back())) sample.messages.erase(sample.messages.size() - 1);
  question.messages = std::move(sample.messages);
  question.tools = std::move(sample.tools);
  question.template_kwargs = std::move(sample.template_kwargs);
  return question;
}

std::optional<PromptCase> prompt_case(const RawRows& rows, std::int64_t row, const ShapeRules& rules) {
  Sample sample = with_place(rows.place(row), [&] { return read_sample(rows.parse(row), rules); });
  PromptCase made{.messages = nullptr,
                  .tools = std::move(sample.tools),
                  .template_kwargs = std::move(sample.template_kwargs),
                  .place = rows.place(row)};
  if (sample.shape == RowShape::text_pair) {
    made.prompt = std::move(sample.prompt);
    made.reference = std::move(sample.text);
    return made;
  }
  if (sample.shape != RowShape::chat && sample.shape != RowShape::chat_pair) return std::nullopt;
  Json messages = conversation_of(sample);
  const std::optional<std::string> answer = take_last_answer(messages);
  if (!answer || messages.empty()) return std::nullopt;
  made.messages = std::move(messages);
  made.reference = *answer;
  return made;
}

}  // namespace qtrain
