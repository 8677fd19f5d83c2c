#include "data/shapes.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "data/dataset.h"
#include "text/template/message.h"

namespace qtrain {
namespace {

constexpr const char* kShapesRemedy =
    "Rows hold one of: messages; prompt and completion; text; conversations; instruction and output; input and output; "
    "input_ids. Another text column is named by dataset_text_field.";

[[noreturn]] void bad_row(std::string cause, std::string remedy = "") {
  fail(ErrorKind::input, {.cause = std::move(cause), .remedy = std::move(remedy)});
}

bool has(const Json& row, std::string_view key) {
  const auto it = row.find(key);
  return it != row.end() && !it->is_null();
}

std::string string_at(const Json& row, std::string_view key) {
  const Json& value = row.at(key);
  if (!value.is_string()) bad_row(fmt::format("'{}' is not a string but {}", key, value.type_name()));
  return value.get<std::string>();
}

std::string optional_string(const Json& row, std::string_view key) {
  return has(row, key) ? string_at(row, key) : std::string();
}

// --- messages ---

/// The usual names of ShareGPT's speakers as roles; other names are kept.
std::string role_of_speaker(const std::string& from) {
  if (from == "human") return "user";
  if (from == "gpt" || from == "function_call") return "assistant";
  if (from == "observation") return "tool";
  return from;
}

/// {"name": ..., "arguments": ...}, or a list of them, as the tool_calls of a message; null if it is neither.
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
  const Json calls = from == "function_call" && has(turn, "value") ? tool_calls_of(string_at(turn, "value")) : Json();
  if (calls.is_null())
    message["content"] = turn.value("value", Json());
  else
    message["tool_calls"] = calls;
  return message;
}

/// Checks a list of messages; from/value turns become role/content ones.
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
    if (has(message, "from") && !has(message, "role")) {
      messages.push_back(message_from_value(message));
      continue;
    }
    if (!has(message, "role") || !message.at("role").is_string())
      bad_row(place + " has no role", "A message has a role (system, user, assistant, tool) and a content.");
    messages.push_back(message);
  }
  return messages;
}

Json message(const char* role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == text.npos;
}

/// A column `system` begins a conversation that does not begin with a system message itself.
void begin_with_system(const Json& row, Json& messages) {
  const std::string system = optional_string(row, "system");
  if (system.empty() || messages.empty() || messages[0].value("role", "") == "system") return;
  messages.insert(messages.begin(), message("system", system));
}

void read_chat_extras(const Json& row, Sample& sample) {
  const bool empty = has(row, "tools") && row.at("tools").is_string() && is_blank(row.at("tools").get<std::string>());
  if (has(row, "tools") && !empty) {
    const Json& tools = row.at("tools");
    sample.tools = tools.is_string() ? parse_json(tools.get_ref<const std::string&>(), "tools") : tools;
    if (!sample.tools.is_array() && !sample.tools.is_null()) bad_row("'tools' is not a list");
    if (sample.tools.empty()) sample.tools = nullptr;
  }
  sample.template_kwargs = has(row, "chat_template_kwargs") ? row.at("chat_template_kwargs") : Json::object();
  if (!sample.template_kwargs.is_object()) bad_row("'chat_template_kwargs' is not an object");
}

// --- rows of tokens ---

std::vector<std::int32_t> ids_at(const Json& row, std::string_view key) {
  const Json& list = row.at(key);
  if (!list.is_array()) bad_row(fmt::format("'{}' is not a list of integers but {}", key, list.type_name()));
  std::vector<std::int32_t> ids;
  ids.reserve(list.size());
  for (const Json& value : list) {
    const bool integer = value.is_number_unsigned() || value.is_number_integer();
    if (!integer || value > std::numeric_limits<std::int32_t>::max() || value < kNoTarget)
      bad_row(fmt::format("'{}' holds {}, which is not a token id", key, dump_json(value).substr(0, 40)));
    ids.push_back(value.get<std::int32_t>());
  }
  return ids;
}

std::vector<std::int32_t> parallel_ids(const Json& row, std::string_view key, std::size_t size) {
  if (!has(row, key)) return {};
  std::vector<std::int32_t> values = ids_at(row, key);
  if (values.size() != size) bad_row(fmt::format("'{}' has {} values for {} input_ids", key, values.size(), size));
  return values;
}

std::vector<bool> mask_at(const Json& row, std::string_view key, std::size_t size) {
  const std::vector<std::int32_t> values = parallel_ids(row, key, size);
  return {values.begin(), values.end()};
}

void read_tokens(const Json& row, const ShapeRules&, Sample& sample) {
  sample.shape = RowShape::tokens;
  sample.input_ids = ids_at(row, "input_ids");
  const std::size_t size = sample.input_ids.size();
  sample.labels = parallel_ids(row, "labels", size);
  sample.position_ids = parallel_ids(row, "position_ids", size);
  sample.assistant_mask = mask_at(row, "assistant_masks", size);
  sample.completion_mask = mask_at(row, "completion_mask", size);
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

/// One question and its answer: chat where there is a template, else text.
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
  if (has(row, "history")) {
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

struct KnownShape {
  std::string_view name;
  std::array<std::string_view, 2> keys;  // both must be there; "" is the text field
  void (*read)(const Json&, const ShapeRules&, Sample&);
};
constexpr std::array<KnownShape, 7> kShapes = {{
    {"input_ids", {"input_ids", "input_ids"}, read_tokens},
    {"prompt+completion", {"prompt", "completion"}, read_pair},
    {"messages", {"messages", "messages"}, read_messages},
    {"conversations", {"conversations", "conversations"}, read_conversations},
    {"text", {"", ""}, read_text_row},
    {"instruction+output", {"instruction", "output"}, read_alpaca},
    {"input+output", {"input", "output"}, read_input_output},
}};

const KnownShape* shape_of(const Json& row, const ShapeRules& rules) {
  for (const KnownShape& shape : kShapes) {
    const auto there = [&](std::string_view key) { return has(row, key.empty() ? rules.text_field : key); };
    if (there(shape.keys[0]) && there(shape.keys[1])) return &shape;
  }
  return nullptr;
}

}  // namespace

Sample read_sample(const Json& row, const ShapeRules& rules) {
  const KnownShape* shape = shape_of(row, rules);
  if (shape == nullptr) {
    std::string keys;
    for (const auto& [key, value] : row.items())
      if (keys.size() < 200) keys += (keys.empty() ? "" : ", ") + key + (value.is_null() ? " (null)" : "");
    bad_row("no known row shape; the row's keys are: " + (keys.empty() ? "none" : keys), kShapesRemedy);
  }
  Sample sample;
  shape->read(row, rules, sample);
  return sample;
}

std::string_view shape_name(const Json& row, const ShapeRules& rules) {
  const KnownShape* shape = shape_of(row, rules);
  return shape ? shape->name : std::string_view();
}

std::string empty_answer(const Sample& sample) {
  if (sample.shape == RowShape::text_pair) return is_blank(sample.text) ? "the completion is empty" : "";
  std::size_t number = 0;  // in the row: a completion's come behind the prompt's
  for (const Json* messages : {&sample.messages, &sample.completion})
    for (const Json& message : *messages) {
      const auto calls = message.find("tool_calls");
      if (is_assistant(message) && is_blank(content_text(message)) && (calls == message.end() || calls->empty()))
        return fmt::format("the assistant's message {} is empty", number);
      ++number;
    }
  return {};
}

std::string missing_answer(const Json& row) {
  const bool asks = has(row, "instruction") || has(row, "input");
  if (!asks || !row.contains("output") || has(row, "output")) return {};
  return "it has no answer";
}

std::string broken_turns(const Sample& sample) {
  if (sample.shape != RowShape::chat && sample.shape != RowShape::chat_pair) return {};
  std::vector<std::string> roles;
  for (const Json* messages : {&sample.messages, &sample.completion})
    for (const Json& message : *messages) {
      const std::string role = message.at("role").get<std::string>();
      const bool more_results = role == "tool" && !roles.empty() && roles.back() == role;
      if (!more_results && !(role == "system" && roles.empty())) roles.push_back(role);
    }
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const bool fits = i % 2 == 1 ? roles[i] == "assistant" : roles[i] == "user" || roles[i] == "tool";
    if (!fits)
      return fmt::format("its turns are not questions and answers by turns: turn {} is of role {}", i, roles[i]);
  }
  if (roles.empty()) return "it has no turns";
  return roles.size() % 2 == 1 ? "it does not end with an answer" : std::string();
}

}  // namespace qtrain
