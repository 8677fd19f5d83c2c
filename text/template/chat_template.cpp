#include "text/template/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "text/template/jinja/interpreter.h"
#include "text/template/jinja/parser.h"
#include "text/template/python/json.h"
#include "text/template/training_forms.h"

namespace qtrain {

struct ChatTemplate::Program {
  std::string source;
  std::string name;  ///< for messages
  ParsedTemplate parsed;
};

namespace {

/// Keys for reasoning in messages; templates read the first, some the second.
constexpr std::array<const char*, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};

const Json* present(const Json* json) {
  return json && !json->is_null() ? json : nullptr;
}

constexpr std::string_view kGeneration = "generation";

PyValue value_or_none(const Json* json) {
  return present(json) ? py_from_json(*json) : PyValue();
}

/// Whether there is a {% generation %} tag, with or without trimming dashes.
bool names_generation_tag(std::string_view source) {
  for (std::size_t at = source.find("{%"); at != source.npos; at = source.find("{%", at + 2)) {
    std::string_view rest = source.substr(at + 2);
    const auto skip_space = [&] { rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n\f\v"), rest.size())); };
    if (rest.starts_with('-')) rest.remove_prefix(1);
    skip_space();
    if (!rest.starts_with(kGeneration)) continue;
    rest.remove_prefix(kGeneration.size());
    skip_space();
    if (rest.starts_with("%}") || rest.starts_with("-%}")) return true;
  }
  return false;
}

[[noreturn]] void refuse(const std::string& name, const std::string& cause) {
  fail(ErrorKind::input, {.cause = cause, .place = name});
}

/// The message without null keys, with its reasoning under all names that templates read.
PyValue prepared(const Json& message) {
  const Json* reasoning = nullptr;
  for (const char* key : kReasoning)
    if (const auto found = message.find(key); !reasoning && found != message.end() && !found->is_null())
      reasoning = &*found;
  PyWork unlimited;
  PyDict dict;
  if (reasoning) dict.set(unlimited, "thinking", py_from_json(*reasoning));
  for (const auto& [key, value] : message.items())
    if (!value.is_null()) dict.set(unlimited, key, py_from_json(value));
  if (reasoning) dict.set(unlimited, "reasoning_content", py_from_json(*reasoning));
  return dict;
}

PyValue prepared_messages(const std::string& name, const Json* messages) {
  if (!messages || !messages->is_array()) refuse(name, "the messages are not a list");
  if (messages->empty()) refuse(name, "the conversation has no messages");
  PyItems items;
  for (const Json& message : *messages) {
    if (!message.is_object()) refuse(name, "a message is not an object: " + dump_json(message).substr(0, 80));
    items.push_back(prepared(message));
  }
  return PyValue::list(std::move(items));
}

PyValue checked_list(const std::string& name, const Json* json, const char* what) {
  if (present(json) && !json->is_array()) refuse(name, std::string("the ") + what + " are not a list");
  return value_or_none(json);
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, std::string name, std::map<std::string, std::string> special_tokens)
    : special_tokens_(std::move(special_tokens)), name_(std::move(name)) {
  add("default", std::move(source));
}

ChatTemplate::ChatTemplate(const std::vector<NamedSource>& templates, std::map<std::string, std::string> special_tokens)
    : special_tokens_(std::move(special_tokens)) {
  for (const NamedSource& t : templates) {
    name_ = t.place;
    add(t.name, t.source);
  }
}

void ChatTemplate::add(const std::string& key, std::string source) {
  const std::string where = programs_.empty() && key == "default" ? name_ : name_ + " (" + key + ")";
  try {
    ParsedTemplate parsed = parse_template(source);
    parsed.has_generation = parsed.has_generation || names_generation_tag(source);
    programs_[key] = std::make_shared<const Program>(Program{std::move(source), where, std::move(parsed)});
  } catch (const Error& e) {
    ErrorText text = e.text();
    text.place = where + ":" + text.place;
    throw Error(e.kind(), std::move(text));
  }
}

const ChatTemplate::Program& ChatTemplate::program_for(const Json* tools) const {
  auto found = present(tools) ? programs_.find("tool_use") : programs_.end();
  if (found == programs_.end()) found = programs_.find("default");
  if (found != programs_.end()) return *found->second;
  std::string names;
  for (const auto& [key, program] : programs_) names += (names.empty() ? "" : ", ") + key;
  fail(ErrorKind::input, {.cause = "the model has several chat templates (" + names + ") and none of them is `default`",
                          .place = name_,
                          .remedy = "Put the one to use into chat_template.jinja or name it `default`."});
}

bool ChatTemplate::has_generation_tags(const Json* tools) const {
  return program_for(tools).parsed.has_generation;
}

std::optional<ChatTemplate> ChatTemplate::for_training() const {
  const auto stock = programs_.find("default");
  if (stock == programs_.end() || has_generation_tags()) return {};
  std::optional<TrainingForm> form = training_form(stock->second->source);
  if (!form) return {};
  return ChatTemplate(std::move(form->source), fmt::format("{} (training form of {})", name_, form->family),
                      special_tokens_);
}

bool ChatTemplate::reads_clock() const {
  return std::any_of(programs_.begin(), programs_.end(),
                     [](const auto& named) { return named.second->source.find("strftime_now") != std::string::npos; });
}

const std::string& ChatTemplate::source(const Json* tools) const {
  return program_for(tools).source;
}

std::map<std::string, std::string> ChatTemplate::sources() const {
  std::map<std::string, std::string> found;
  for (const char* key : {"default", "tool_use"})
    if (const auto named = programs_.find(key); named != programs_.end()) found.emplace(key, named->second->source);
  return found;
}

Rendered ChatTemplate::render(const RenderInput& input) const {
  const Program& program = program_for(input.tools);
  TemplateRun run(program.parsed, input.now.value_or(std::time(nullptr)));
  for (const auto& [key, text] : special_tokens_) run.define(key, text);
  if (present(input.extra)) {
    if (!input.extra->is_object()) refuse(program.name, "the template's extra variables are not an object");
    for (const auto& [key, value] : input.extra->items()) run.define(key, py_from_json(value));
  }
  run.define("messages", prepared_messages(program.name, input.messages));
  run.define("tools", checked_list(program.name, input.tools, "tools"));
  run.define("documents", checked_list(program.name, input.documents, "documents"));
  run.define("add_generation_prompt", input.add_generation_prompt);
  try {
    return run.render();
  } catch (const Error& e) {
    ErrorText text = e.text();
    if (text.place.empty()) text.place = program.name + ":" + std::to_string(run.line());
    throw Error(e.kind(), std::move(text));
  }
}

}  // namespace qtrain
