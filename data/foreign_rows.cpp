#include "data/foreign_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <utility>

namespace qtrain {
namespace {

/// Whether a value is a verdict: true or false, also as a string.
bool is_verdict(const Json& value) {
  constexpr std::array<std::string_view, 6> kTexts = {"true", "false", "True", "False", "TRUE", "FALSE"};
  return value.is_boolean() || (value.is_string() && std::find(kTexts.begin(), kTexts.end(),
                                                               value.get_ref<const std::string&>()) != kTexts.end());
}

/// Whether the row's conversation ends with an answer.
bool is_answered(const Json& row, std::string_view shape) {
  if (shape.empty()) return false;
  const auto talk = row.find(shape);
  if (talk == row.end() || !talk->is_array() || talk->empty() || shape == "input_ids") return true;
  const Json& last = talk->back();
  const Json role = last.is_object() ? last.value("role", last.value("from", Json())) : Json();
  return role != "user" && role != "human";
}

/// Lower-case names of columns in the order of preference: a question is rather what the model is asked to do than what
/// it is to read, and an answer is rather worked out than bare.
constexpr std::array<std::string_view, 12> kQuestions = {
    "instruction", "question", "query", "problem", "frage", "prompt", "user", "human", "request", "q", "ask", "input"};
constexpr std::array<std::string_view, 12> kAnswers = {"output",     "solution", "answer", "response",
                                                       "completion", "antwort",  "reply",  "assistant",
                                                       "generated",  "target",   "a",      "gpt"};
/// What a question is about, or the question itself next to an instruction.
constexpr std::array<std::string_view, 8> kInputs = {"input", "question", "query",   "problem",
                                                     "frage", "context",  "kontext", "passage"};
constexpr std::array<std::string_view, 3> kSystems = {"system", "system_prompt", "system_message"};
constexpr std::array<std::string_view, 8> kDialogs = {"messages", "conversations", "conversation", "dialog",
                                                      "dialogue", "dialogs",       "chat",         "turns"};
constexpr std::array<std::string_view, 6> kTexts = {"text", "content", "body", "document", "article", "passage"};

using NameList = std::span<const std::string_view>;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// The column whose name comes first in the list; "" if none matches.
std::string column_of(const Json& row, NameList names) {
  for (const std::string_view name : names)
    for (const auto& [key, value] : row.items())
      if (lower(key) == name) return key;
  return {};
}

/// The same for a column that may be left empty, which must be text; never `other`.
std::string text_column_of(const Json& row, NameList names, const std::string& other) {
  for (const std::string_view name : names)
    for (const auto& [key, value] : row.items())
      if (key != other && lower(key) == name && (value.is_string() || value.is_null())) return key;
  return {};
}

/// Names the column of a role, unless it has the role's own name or there is none.
void map_to(Json& mapping, const char* role, const std::string& column) {
  if (!column.empty() && column != role) mapping[role] = column;
}

/// Whether this is a list of messages, which are objects.
bool is_talk(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_object();
}

Json mapping_of_pair(const Json& row, const std::string& question, const std::string& answer) {
  Json mapping = Json::object();
  const std::string input = text_column_of(row, kInputs, question), system = text_column_of(row, kSystems, question);
  const bool is_plain = question == "input" && input.empty() && system.empty();  // input and output are a shape
  if (!is_plain) map_to(mapping, "instruction", question);
  map_to(mapping, "input", input);
  map_to(mapping, "system", system);
  map_to(mapping, "output", answer);
  return mapping;
}

Json setting_of(Json mapping) {
  return mapping.empty() ? Json::object() : Json{{"column_mapping", std::move(mapping)}};
}

}  // namespace

void bad_row(std::string cause, std::string remedy) {
  fail(ErrorKind::input, {.cause = std::move(cause), .remedy = std::move(remedy)});
}

bool row_has(const Json& row, std::string_view key) {
  const auto it = row.find(key);
  return it != row.end() && !it->is_null();
}

bool is_filled(const Json& row, std::string_view key) {
  return row_has(row, key) && row.at(key) != "" && row.at(key) != Json::array();
}

bool is_media(std::string_view name) {
  constexpr std::array<std::string_view, 10> kMedia = {"image", "images", "image_url", "audio",       "audios",
                                                       "video", "videos", "video_url", "input_audio", "input_image"};
  return std::find(kMedia.begin(), kMedia.end(), name) != kMedia.end();
}

void refuse_media(const Json& row) {
  for (const auto& [key, value] : row.items())
    if (is_media(key) && is_filled(row, key))
      bad_row(fmt::format("the row contains '{}', but only text is supported", key),
              "Remove such rows or, if the text makes sense without it, drop the column: dataset_mixture: [{path: ..., "
              "columns: [messages]}].");
}

void refuse_preferences(const Json& row, std::string_view shape) {
  constexpr const char* kRemedy =
      "Preference training is not supported: use only the good answers, as messages or prompt and completion, or drop "
      "the column: dataset_mixture: [{path: ..., columns: [...]}].";
  if (row_has(row, "chosen") && row_has(row, "rejected") && !is_answered(row, shape))
    bad_row("the row is for preference training: it has a chosen and a rejected answer", kRemedy);
  const bool answers = !shape.empty() && shape != "text" && shape != "input_ids";
  for (const char* key : {"kto_tag", "label"})
    if (answers && row_has(row, key) && is_verdict(row.at(key)))
      bad_row(fmt::format("the row is for preference training: '{}' says whether its answer is good", key), kRemedy);
}

Json mapping_for(const Json& row) {
  const std::string dialog = column_of(row, kDialogs);
  if (!dialog.empty() && is_talk(row.at(dialog))) {
    Json mapping = Json::object();
    if (dialog != "conversations") map_to(mapping, "messages", dialog);
    map_to(mapping, "system", text_column_of(row, kSystems, dialog));
    return setting_of(std::move(mapping));
  }
  const std::string question = column_of(row, kQuestions), answer = column_of(row, kAnswers),
                    text = column_of(row, kTexts);
  if (!question.empty() && !answer.empty()) return setting_of(mapping_of_pair(row, question, answer));
  return text.empty() || text == "text" ? Json::object() : Json{{"dataset_text_field", text}};
}

}  // namespace qtrain
