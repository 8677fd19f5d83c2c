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

/// Lower-case column names of questions and answers; names of a known shape come first.
constexpr std::array<std::string_view, 12> kQuestions = {
    "instruction", "input", "question", "query", "prompt", "frage", "problem", "user", "human", "request", "q", "ask"};
constexpr std::array<std::string_view, 12> kAnswers = {"output",    "answer", "response", "completion",
                                                       "antwort",   "reply",  "solution", "assistant",
                                                       "generated", "target", "a",        "gpt"};
constexpr std::array<std::string_view, 6> kDialogs = {"conversation", "dialog", "dialogue", "dialogs", "chat", "turns"};
constexpr std::array<std::string_view, 5> kTexts = {"content", "body", "document", "article", "passage"};

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
  const std::string question = column_of(row, kQuestions), answer = column_of(row, kAnswers),
                    dialog = column_of(row, kDialogs), text = column_of(row, kTexts);
  if (!question.empty() && !answer.empty()) {
    Json mapping = Json::object();
    if (question != "instruction" && question != "input") mapping["instruction"] = question;
    if (answer != "output") mapping["output"] = answer;
    return {{"column_mapping", mapping}};
  }
  if (!dialog.empty() && row.at(dialog).is_array()) return {{"column_mapping", {{"messages", dialog}}}};
  return text.empty() ? Json::object() : Json{{"dataset_text_field", text}};
}

}  // namespace qtrain
