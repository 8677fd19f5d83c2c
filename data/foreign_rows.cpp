#include "data/foreign_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
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

using Names = std::span<const std::string_view>;

/// Lower-case names of columns in the order of preference: a question is rather what the model is asked to do than what
/// it is to read, and an answer is rather worked out than bare. Only the first ones are clear; `user` may also be a
/// person, and `a` a class.
constexpr std::array<std::string_view, 12> kQuestions = {
    "instruction", "question", "query", "problem", "frage", "prompt", "input", "user", "human", "request", "q", "ask"};
constexpr std::array<std::string_view, 12> kAnswers = {"output",     "solution", "answer", "response",
                                                       "completion", "antwort",  "reply",  "assistant",
                                                       "generated",  "target",   "a",      "gpt"};
constexpr std::size_t kClearQuestions = 7, kClearAnswers = 6;
/// What there may be next to an instruction: a question, or what it is about.
constexpr std::array<std::string_view, 4> kAsked = {"question", "query", "problem", "frage"};
constexpr std::array<std::string_view, 4> kSubjects = {"input", "context", "kontext", "passage"};
constexpr std::array<std::string_view, 8> kInputs = {"input", "question", "query",   "problem",
                                                     "frage", "context",  "kontext", "passage"};
constexpr std::array<std::string_view, 3> kSystems = {"system", "system_prompt", "system_message"};
constexpr std::array<std::string_view, 8> kDialogs = {"messages", "conversations", "conversation", "dialog",
                                                      "dialogue", "dialogs",       "chat",         "turns"};
constexpr std::array<std::string_view, 6> kTexts = {"text", "content", "body", "document", "article", "passage"};

/// The column whose name comes first, of those whose key and value `fits` accepts; "" if none does.
std::string column_of(const Json& row, Names names, auto fits) {
  for (const std::string_view name : names)
    for (const auto& [key, value] : row.items())
      if (plain_name(key) == name && fits(key, value)) return key;
  return {};
}

bool is_text(const std::string&, const Json& value) {
  return value.is_string();
}
bool is_any(const std::string&, const Json&) {
  return true;
}

bool is_list_of_objects(const std::string&, const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_object();
}
/// Whether these objects have what messages have.
bool is_talk(const std::string& key, const Json& value) {
  return is_list_of_objects(key, value) && (value.front().contains("role") || value.front().contains("from"));
}

bool contains(const Json& row, const std::string& column, const Json& text) {
  const auto at = row.find(column);
  return at != row.end() && at->is_string() && text.is_string() &&
         at->get_ref<const std::string&>().find(text.get_ref<const std::string&>()) != std::string::npos;
}

/// Another column of a row, if it does not only repeat the question: one that has a text here, else one that may have
/// one in other rows.
std::string further_column(const Json& row, Names names, const std::string& question) {
  const auto may_have_text = [&](const std::string& key, const Json& value) {
    return key != question && (value.is_string() || value.is_null());
  };
  const auto has_text = [&](const std::string& key, const Json& value) {
    return may_have_text(key, value) && is_filled(row, key) && !contains(row, question, value);
  };
  const auto may_in_others = [&](const std::string& key, const Json& value) {
    return may_have_text(key, value) && !is_filled(row, key);
  };
  const std::string filled = column_of(row, names, has_text);
  return filled.empty() ? column_of(row, names, may_in_others) : filled;
}

/// Names the column of a role, unless it has the role's own name or there is none.
void map_to(Json& mapping, const char* role, const std::string& column) {
  if (!column.empty() && column != role) mapping[role] = column;
}

struct Pair {
  std::string question, answer;
};
/// Maps a question, its answer, the system prompt, and what has one of the names of inputs.
Json mapping_of_pair(const Json& row, const Pair& pair, Names inputs) {
  Json mapping = Json::object();
  const std::string input = further_column(row, inputs, pair.question),
                    system = further_column(row, kSystems, pair.question);
  const bool is_plain = pair.question == "input" && input.empty() && system.empty();  // input and output are a shape
  if (!is_plain) map_to(mapping, "instruction", pair.question);
  map_to(mapping, "input", input);
  map_to(mapping, "system", system);
  map_to(mapping, "output", pair.answer);
  return mapping;
}

Json mapping_of_talk(const Json& row, const std::string& talk) {
  Json mapping = Json::object();
  if (talk != "conversations") map_to(mapping, "messages", talk);
  map_to(mapping, "system", further_column(row, kSystems, talk));
  return mapping;
}

Json setting_of(Json mapping) {
  return mapping.empty() ? Json::object() : Json{{"column_mapping", std::move(mapping)}};
}

/// The columns of a question and its answer, rather texts; none if one of them is not there.
std::optional<Json> mapping_of_question(const Json& row) {
  const auto one_of = [&](Names names) {
    const std::string text = column_of(row, names, is_text);
    return text.empty() ? column_of(row, names, is_any) : text;
  };
  const Pair pair{one_of(kQuestions), one_of(kAnswers)};
  if (pair.question.empty() || pair.answer.empty()) return {};
  return mapping_of_pair(row, pair, kInputs);
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

std::string plain_name(std::string column) {
  std::ranges::transform(column, column.begin(), [](unsigned char c) { return std::tolower(c); });
  return column;
}

Json mapping_for(const Json& row) {
  if (const std::string talk = column_of(row, kDialogs, is_talk); !talk.empty())
    return setting_of(mapping_of_talk(row, talk));
  if (std::optional<Json> mapping = mapping_of_question(row)) return setting_of(std::move(*mapping));
  if (const std::string text = column_of(row, kTexts, is_any); !text.empty())
    return text == "text" ? Json::object() : Json{{"dataset_text_field", text}};
  const std::string talk = column_of(row, kDialogs, is_list_of_objects);  // reading them says what they lack
  return talk.empty() ? Json::object() : setting_of(mapping_of_talk(row, talk));
}

std::optional<Json> answers_beside_text(const Json& row) {
  if (const std::string talk = column_of(row, kDialogs, is_talk); !talk.empty())
    return setting_of(mapping_of_talk(row, talk));
  const Pair pair{column_of(row, Names(kQuestions).first(kClearQuestions), is_text),
                  column_of(row, Names(kAnswers).first(kClearAnswers), is_text)};
  if (pair.question.empty() || pair.answer.empty()) return {};
  return setting_of(mapping_of_pair(row, pair, kInputs));
}

Json additions_for(const Json& row, std::string_view shape) {
  if (shape == "messages" || shape == "conversations") return setting_of(mapping_of_talk(row, std::string(shape)));
  if (shape == "prompt+completion") return setting_of(mapping_of_pair(row, {"prompt", "completion"}, kSubjects));
  if (shape == "instruction+output") return setting_of(mapping_of_pair(row, {"instruction", "output"}, kInputs));
  if (shape != "input+output") return Json::object();
  const std::string asked = column_of(row, kAsked, is_text);
  return setting_of(mapping_of_pair(row, {asked.empty() ? "input" : asked, "output"}, kSubjects));
}

}  // namespace qtrain
