#include "data/row_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "data/dataset.h"
#include "data/foreign_rows.h"
#include "data/source/doubtful_row.h"
#include "data/token_columns.h"
#include "text/template/message.h"

namespace qtrain {
namespace {

constexpr const char* kShapesRemedy =
    "A row must contain one of: messages; prompt and completion; text; conversations; instruction and output; input "
    "and output; input_ids. Set dataset_text_field for another text column.";

std::string string_at(const Json& row, std::string_view key) {
  const Json& value = row.at(key);
  if (!value.is_string()) bad_row(fmt::format("'{}' is not a string but {}", key, value.type_name()));
  return value.get<std::string>();
}

std::string optional_string(const Json& row, std::string_view key) {
  return row_has(row, key) ? string_at(row, key) : std::string();
}

// --- messages ---

/// Maps ShareGPT's speakers to roles; keeps other names.
std::string role_of_speaker(const std::string& from) {
  if (from == "human") return "user";
  if (from == "gpt" || from == "function_call") return "assistant";
  if (from == "observation") return "tool";
  return from;
}

/// Converts {"name": ..., "arguments": ...}, or a list of such objects, to a message's tool_calls; null for other
/// values.
Json tool_calls_of(const std::string& value) {
  Json calls;
  try {
    calls = parse_json(value, "function_call");
  } catch (const Error&) {
    return nullptr;  // free text
  }
  if (calls.is_object()) calls = Json::array({calls});
  if (!calls.is_array() || calls.empty()) return nullptr;
  Json out = Json::array();
  for (const Json& call : calls) {
    if (!call.is_object() || !call.contains("name")) return nullptr;
    out.push_back({{"type", "function"}, {"function", call}});
  }
  return out;
}

Json message_from_value(const Json& turn) {
  const std::string from = string_at(turn, "from");
  Json message = {{"role", role_of_speaker(from)}};
  for (const auto& [key, value] : turn.items())
    if (key != "from" && key != "value") message[key] = value;
  const Json calls =
      from == "function_call" && row_has(turn, "value") ? tool_calls_of(string_at(turn, "value")) : Json();
  if (calls.is_null())
    message["content"] = turn.value("value", Json());
  else
    message["tool_calls"] = calls;
  return message;
}

bool is_blank_text(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == text.npos;
}

/// Parses a value that some files store as JSON text.
Json decoded(const Json& value, const std::string& place) {
  if (!value.is_string() || value == "") return value;
  try {
    return parse_json(value.get_ref<const std::string&>(), place);
  } catch (const Error& e) {
    bad_row(fmt::format("{} is a string that is not JSON: {}", place, e.text().cause));
  }
}

/// A list of objects; the list or each object may be JSON text. null stays null.
Json decoded_list(const Json& value, const std::string& place) {
  if (value.is_string() && is_blank_text(value.get<std::string>())) return nullptr;
  Json list = decoded(value, place);
  if (list.is_null()) return nullptr;
  if (!list.is_array()) bad_row(fmt::format("{} is not a list", place));
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = decoded(list[i], fmt::format("{}[{}]", place, i));
    if (!list[i].is_object()) bad_row(fmt::format("{}[{}] is not an object but {}", place, i, list[i].type_name()));
  }
  return list;
}

constexpr const char* kSwitchRemedy = "A message is learned entirely or not at all: use 0 or 1, false or true.";

/// The value of a message's switch; none if it is absent.
std::optional<bool> switch_at(const Json& message, const char* key) {
  const auto at = message.find(key);
  if (at == message.end() || at->is_null()) return {};
  if (at->is_boolean()) return at->get<bool>();
  if (at->is_number() && (*at == 0 || *at == 1)) return *at == 1;
  bad_row(fmt::format("a message's '{}' is {}", key, dump_json(*at).substr(0, 40)), kSwitchRemedy);
}

constexpr std::array<const char*, 3> kSwitches = {"weight", "loss", "train"};

/// Checks what must hold for any message; converts tool_calls to a list of objects.
void check_message(Json& message, const std::string& place) {
  for (const char* key : kSwitches) switch_at(message, key);
  if (row_has(message, "tool_calls"))
    message["tool_calls"] = decoded_list(message["tool_calls"], place + ".tool_calls");
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return;
  for (const Json& part : *content)
    if (const Json type = part.is_object() ? part.value("type", Json()) : Json();
        type.is_string() && is_media(type.get_ref<const std::string&>()))
      bad_row(fmt::format("{} contains a part of type {}, but only text is supported", place, type.get<std::string>()),
              "Remove such rows, or just the part if the text makes sense without it.");
}

/// Checks a list of messages and converts from/value turns to role/content.
Json messages_at(const Json& row, std::string_view key, const ShapeRules& rules) {
  const Json& list = row.at(key);
  if (!list.is_array()) bad_row(fmt::format("'{}' is not a list of messages but {}", key, list.type_name()));
  if (list.empty() && !rules.broken_turns)
    bad_row(fmt::format("'{}' is an empty conversation", key), "Remove the row.");
  Json messages = Json::array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Json& message = list[i];
    const std::string place = fmt::format("'{}[{}]'", key, i);
    if (!message.is_object()) bad_row(place + " is not an object but " + message.type_name());
    if (row_has(message, "from") && !row_has(message, "role")) {
      messages.push_back(message_from_value(message));
      check_message(messages.back(), place);
      continue;
    }
    if (!row_has(message, "role") || !message.at("role").is_string())
      bad_row(place + " has no role", "A message needs a role (system, user, assistant, tool) and content.");
    messages.push_back(message);
    check_message(messages.back(), place);
  }
  return messages;
}

Json message(const char* role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

/// Puts the `system` column first, unless the conversation already begins with a system message.
void begin_with_system(const Json& row, Json& messages) {
  const std::string system = optional_string(row, "system");
  if (system.empty() || messages.empty() || messages[0].value("role", "") == "system") return;
  messages.insert(messages.begin(), message("system", system));
}

void read_chat_extras(const Json& row, Sample& sample) {
  if (row_has(row, "tools")) sample.tools = decoded_list(row.at("tools"), "'tools'");
  if (sample.tools.empty()) sample.tools = nullptr;
  for (const char* key : {"tool_defs", "tool_definitions", "available_tools", "functions"})
    if (sample.tools.is_null() && sample.unread.empty() && is_filled(row, key))
      sample.unread = fmt::format("the column '{0}' is not read (column_mapping: {{tools: {0}}} reads it)", key);
  sample.template_kwargs = row_has(row, "chat_template_kwargs") ? row.at("chat_template_kwargs") : Json::object();
  if (!sample.template_kwargs.is_object()) bad_row("'chat_template_kwargs' is not an object");
}

// --- the other shapes ---

void read_pair(const Json& row, const ShapeRules& rules, Sample& sample) {
  const bool chat_prompt = row.at("prompt").is_array(), chat_completion = row.at("completion").is_array();
  if (!chat_prompt && !chat_completion) {
    sample.shape = RowShape::text_pair;
    sample.prompt = string_at(row, "prompt");
    sample.text = string_at(row, "completion");
    return;
  }
  sample.shape = RowShape::chat_pair;
  sample.messages =
      chat_prompt ? messages_at(row, "prompt", rules) : Json::array({message("user", string_at(row, "prompt"))});
  sample.completion = chat_completion ? messages_at(row, "completion", rules)
                                      : Json::array({message("assistant", string_at(row, "completion"))});
  begin_with_system(row, sample.messages);
  read_chat_extras(row, sample);
}

void read_messages(const Json& row, const ShapeRules& rules, Sample& sample) {
  sample.shape = RowShape::chat;
  sample.messages = messages_at(row, "messages", rules);
  begin_with_system(row, sample.messages);
  read_chat_extras(row, sample);
}

void read_conversations(const Json& row, const ShapeRules& rules, Sample& sample) {
  sample.shape = RowShape::chat;
  sample.messages = messages_at(row, "conversations", rules);
  begin_with_system(row, sample.messages);
  read_chat_extras(row, sample);
}

void read_text_row(const Json& row, const ShapeRules& rules, Sample& sample) {
  sample.shape = RowShape::text;
  sample.text = string_at(row, rules.text_field);
}

/// A question and its answer: chat if there is a template, otherwise text.
void set_question(Sample& sample, const ShapeRules& rules, std::pair<std::string, std::string> turn) {
  if (rules.chat_template) {
    sample.shape = RowShape::chat_pair;
    sample.messages.push_back(message("user", std::move(turn.first)));
    sample.completion = Json::array({message("assistant", std::move(turn.second))});
  } else {
    sample.shape = RowShape::text_pair;
    for (const Json& before : sample.messages) sample.prompt += before.at("content").get<std::string>() + "\n\n";
    sample.messages = nullptr;
    sample.prompt += std::move(turn.first) + "\n\n";
    sample.text = std::move(turn.second);
  }
}

void read_alpaca(const Json& row, const ShapeRules& rules, Sample& sample) {
  std::string question = string_at(row, "instruction");
  const std::string input = optional_string(row, "input"), system = optional_string(row, "system");
  if (!input.empty()) question += (question.empty() ? "" : "\n") + input;
  sample.messages = Json::array();
  if (!system.empty()) sample.messages.push_back(message("system", system));
  if (row_has(row, "history")) {
    if (!row.at("history").is_array()) bad_row("'history' is not a list");
    for (const Json& turn : row.at("history")) {
      if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string())
        bad_row("'history' is not a list of [question, answer]");
      sample.messages.push_back(message("user", turn[0].get<std::string>()));
      sample.messages.push_back(message("assistant", turn[1].get<std::string>()));
    }
  }
  set_question(sample, rules, {std::move(question), string_at(row, "output")});
  if (rules.chat_template) read_chat_extras(row, sample);
}

void read_input_output(const Json& row, const ShapeRules& rules, Sample& sample) {
  sample.messages = Json::array();
  set_question(sample, rules, {string_at(row, "input"), string_at(row, "output")});
  if (rules.chat_template) read_chat_extras(row, sample);
}

using Columns = std::array<std::string_view, 4>;  // unused ones are ""
constexpr Columns kNone = {}, kOfChats = {"system", "tools", "chat_template_kwargs"};

struct KnownShape {
  std::string_view name;
  std::array<std::string_view, 2> keys;  // both must exist; "" means the text field
  Columns others;                        // read if they are there
  Columns of_chats;                      // likewise, but only if the rows become chats
  void (*read)(const Json&, const ShapeRules&, Sample&);
};
constexpr std::array<KnownShape, 7> kShapes = {{
    {"input_ids",
     {"input_ids", "input_ids"},
     {"labels", "position_ids", "assistant_masks", "completion_mask"},
     kNone,
     read_token_columns},
    {"prompt+completion", {"prompt", "completion"}, kNone, kOfChats, read_pair},
    {"messages", {"messages", "messages"}, kNone, kOfChats, read_messages},
    {"conversations", {"conversations", "conversations"}, kNone, kOfChats, read_conversations},
    {"text", {"", ""}, kNone, kNone, read_text_row},
    {"instruction+output",
     {"instruction", "output"},
     {"input", "system", "history"},
     {"tools", "chat_template_kwargs"},
     read_alpaca},
    {"input+output", {"input", "output"}, kNone, {"tools", "chat_template_kwargs"}, read_input_output},
}};

const KnownShape* shape_of(const Json& row, const ShapeRules& rules) {
  for (const KnownShape& shape : kShapes) {
    const auto there = [&](std::string_view key) { return row_has(row, key.empty() ? rules.text_field : key); };
    if (there(shape.keys[0]) && there(shape.keys[1])) return &shape;
  }
  return nullptr;
}

// --- rows of no known shape ---

[[noreturn]] void refuse_shape(const Json& row, const ShapeRules& rules) {
  if (const std::string lack = missing_answer(row, rules); !lack.empty())
    bad_row(lack, "Fill it in, or skip such rows (skip_empty_answers: true).");
  std::string keys;
  for (const auto& [key, value] : row.items())
    if (keys.size() < 200) keys += (keys.empty() ? "" : ", ") + key + (value.is_null() ? " (null)" : "");
  const Json settings = mapping_for(row);
  std::string mapping;
  for (const auto& [key, value] : settings.items())
    mapping = fmt::format("{}: {}", key, value.is_string() ? value.get<std::string>() : dump_json(value));
  bad_row("unknown row shape; the row's keys are: " + (keys.empty() ? "none" : keys),
          mapping.empty() ? kShapesRemedy : fmt::format("To use these columns, set {}", mapping));
}

}  // namespace

std::string missing_answer(const Json& row, const ShapeRules& rules) {
  if (shape_of(row, rules)) return {};
  for (const KnownShape& shape : kShapes) {
    const std::string first(shape.keys[0].empty() ? rules.text_field : shape.keys[0]),
        last(shape.keys[1].empty() ? rules.text_field : shape.keys[1]);
    const auto answer = row.find(last);
    if (answer != row.end() && answer->is_null() && (first == last || row_has(row, first)))
      return fmt::format("'{}' is empty", last);
  }
  return {};
}

Sample read_sample(const Json& row, const ShapeRules& rules) {
  const KnownShape* shape = shape_of(row, rules);
  refuse_media(row);
  refuse_preferences(row, shape ? shape->name : std::string_view());
  if (shape == nullptr) refuse_shape(row, rules);
  Sample sample;
  try {
    shape->read(row, rules, sample);
  } catch (const Error& e) {  // for a column with invalid JSON
    for (const auto& [key, value] : row.items())
      if (value.is_binary() && e.text().cause.find("'" + key + "'") != std::string::npos)
        bad_row(fmt::format("'{}': {}", key, doubt_of(value)), "Correct the value.");
    throw;
  }
  return sample;
}

Json conversation_of(const Sample& sample) {
  Json messages = sample.messages;
  if (sample.shape == RowShape::chat_pair)
    messages.insert(messages.end(), sample.completion.begin(), sample.completion.end());
  return messages;
}

bool is_learned(const Json& message) {
  return std::all_of(kSwitches.begin(), kSwitches.end(),
                     [&](const char* key) { return switch_at(message, key).value_or(true); });
}

std::string_view shape_name(const Json& row, const ShapeRules& rules) {
  const KnownShape* shape = shape_of(row, rules);
  return shape ? shape->name : std::string_view();
}

std::vector<std::string> columns_of(std::string_view name, RowShape shape, const ShapeRules& rules) {
  const auto known = std::ranges::find(kShapes, name, &KnownShape::name);
  std::vector<std::string> columns;
  if (known == kShapes.end()) return columns;
  for (const std::string_view key : known->keys) columns.emplace_back(key.empty() ? rules.text_field : key);
  const bool is_chat = shape == RowShape::chat || shape == RowShape::chat_pair;
  for (const Columns& others : {known->others, is_chat ? known->of_chats : kNone})
    for (const std::string_view other : others)
      if (!other.empty()) columns.emplace_back(other);
  return columns;
}

std::string empty_answer(const Sample& sample) {
  if (sample.shape == RowShape::text_pair) return is_blank_text(sample.text) ? "the completion is empty" : "";
  std::size_t number = 0;  // index in the row: a completion's messages follow the prompt's
  for (const Json* messages : {&sample.messages, &sample.completion})
    for (const Json& message : *messages) {
      const auto calls = message.find("tool_calls");
      if (is_assistant(message) && is_blank_text(content_text(message)) && (calls == message.end() || calls->empty()))
        return fmt::format("the assistant's message {} is empty", number);
      ++number;
    }
  return {};
}

}  // namespace qtrain
