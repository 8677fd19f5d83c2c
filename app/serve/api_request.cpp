#include "app/serve/api_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "app/serve/api_error.h"
#include "config/keys.h"
#include "core/plural.h"
#include "text/template/unprinted.h"

namespace qtrain::serve {
namespace {

enum class Key : std::uint8_t {
  read,  ///< read by both endpoints
  chat,  ///< read by one endpoint
  completions,
  ignored,      ///< accepted, but without effect on the answer
  unsupported,  ///< refused if set
};
struct KnownKey {
  std::string_view name;
  Key kind;
};
constexpr KnownKey kKeys[] = {{"model", Key::read},
                              {"max_tokens", Key::read},
                              {"temperature", Key::read},
                              {"top_p", Key::read},
                              {"top_k", Key::read},
                              {"min_p", Key::read},
                              {"repetition_penalty", Key::read},
                              {"seed", Key::read},
                              {"n", Key::read},
                              {"stop", Key::read},
                              {"stream", Key::read},
                              {"stream_options", Key::read},
                              {"logprobs", Key::read},
                              {"messages", Key::chat},
                              {"max_completion_tokens", Key::chat},
                              {"top_logprobs", Key::chat},
                              {"tools", Key::chat},
                              {"tool_choice", Key::chat},
                              {"response_format", Key::chat},
                              {"chat_template_kwargs", Key::chat},
                              {"prompt", Key::completions},
                              {"user", Key::ignored},
                              {"metadata", Key::ignored},
                              {"store", Key::ignored},
                              {"service_tier", Key::ignored},
                              {"parallel_tool_calls", Key::ignored},
                              {"prompt_cache_key", Key::ignored},
                              {"safety_identifier", Key::ignored},
                              {"frequency_penalty", Key::unsupported},
                              {"presence_penalty", Key::unsupported},
                              {"logit_bias", Key::unsupported},
                              {"best_of", Key::unsupported},
                              {"echo", Key::unsupported},
                              {"suffix", Key::unsupported},
                              {"functions", Key::unsupported},
                              {"function_call", Key::unsupported},
                              {"audio", Key::unsupported},
                              {"modalities", Key::unsupported},
                              {"prediction", Key::unsupported},
                              {"reasoning_effort", Key::unsupported},
                              {"verbosity", Key::unsupported},
                              {"web_search_options", Key::unsupported}};

bool is_of(Key kind, Endpoint endpoint) {
  return kind != (endpoint == Endpoint::chat ? Key::completions : Key::chat);
}

constexpr std::size_t kMaxKey = 64;  // bytes of a key that errors repeat

void require_known(const Json& body, Endpoint endpoint) {
  std::vector<std::string_view> names;
  for (const KnownKey& k : kKeys)
    if (is_of(k.kind, endpoint)) names.push_back(k.name);
  for (const auto& [name, value] : body.items()) {
    if (std::ranges::find(names, name) == names.end()) {
      const std::string_view near = nearest(name, names);
      refuse({.message = fmt::format("there is no key {}{}", show(name),
                                     near.empty() ? "" : fmt::format(": did you mean \"{}\"?", near)),
              .param = name.size() <= kMaxKey ? name : ""});
    }
    const auto key = std::ranges::find(kKeys, name, &KnownKey::name);
    if (key->kind == Key::unsupported && !is_unset(value) && !(name == "best_of" && value == 1))
      refuse({.message = fmt::format("\"{}\" is not supported: remove it", name), .param = name});
  }
}

/// Values of a JSON object; null counts as no value.
class Body {
 public:
  explicit Body(const Json& json) : json_(json) {}

  const Json* find(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  struct Range {
    double min, max;
  };
  std::optional<double> number(const char* key, Range range) const {
    const Json* value = find(key);
    if (!value) return {};
    if (!value->is_number() || !(value->get<double>() >= range.min && value->get<double>() <= range.max))
      refuse({.message =
                  fmt::format("\"{}\" must be a number from {} to {}, not {}", key, range.min, range.max, show(*value)),
              .param = key});
    return value->get<double>();
  }
  std::optional<std::int64_t> integer(const char* key, std::int64_t min, std::int64_t max) const {
    const Json* value = find(key);
    if (!value) return {};
    const bool fits = value->is_number_unsigned() ? value->get<std::uint64_t>() <= std::uint64_t(max) : true;
    if (!value->is_number_integer() || !fits || value->get<std::int64_t>() < min || value->get<std::int64_t>() > max)
      refuse({.message = fmt::format("\"{}\" must be an integer from {} to {}, not {}", key, min, max, show(*value)),
              .param = key});
    return value->get<std::int64_t>();
  }
  bool flag(const char* key) const {
    const Json* value = find(key);
    if (!value) return false;
    if (!value->is_boolean())
      refuse({.message = fmt::format("\"{}\" must be true or false, not {}", key, show(*value)), .param = key});
    return value->get<bool>();
  }

 private:
  const Json& json_;
};

const JsonRules kJsonOfClient{.duplicate_keys = true, .max_values = std::uint64_t{1} << 22};
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 31, kMaxLogprobs = 20, kMaxStops = 16;
// The end of an answer is held back, and searched for stop strings at every token, so they must not be long.
constexpr std::size_t kMaxStopBytes = 1024;

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

void read_sampling(const Body& body, ApiRequest& r) {
  SamplingOptions& s = r.sampling;
  for (const char* sampled : {"temperature", "top_p", "top_k", "min_p"})
    if (body.find(sampled)) s.greedy = false;
  s.temperature = body.number("temperature", {0, 100}).value_or(s.temperature);
  s.top_p = body.number("top_p", {0, 1}).value_or(s.top_p);
  s.min_p = body.number("min_p", {0, 1}).value_or(s.min_p);
  s.top_k = std::max<std::int64_t>(0, body.integer("top_k", -1, kMaxTokens).value_or(s.top_k));
  s.repetition_penalty = body.number("repetition_penalty", {0.01, 100}).value_or(s.repetition_penalty);
  if (s.top_p == 0) s.greedy = true;  // only the most likely token is left
  const auto seed =
      body.integer("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  s.seed = seed ? static_cast<std::uint64_t>(*seed) : random_seed();
}

void read_stop(const Body& body, ApiRequest& r) {
  const Json* stop = body.find("stop");
  if (!stop) return;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  const bool good = list.size() <= kMaxStops && std::ranges::all_of(list, [](const Json& s) {
                      if (!s.is_string()) return false;
                      const auto& text = s.get_ref<const std::string&>();
                      return !text.empty() && text.size() <= kMaxStopBytes;
                    });
  if (!good)
    refuse({.message = fmt::format("\"stop\" must be a string or a list of at most {} strings, each of 1 to {} bytes",
                                   kMaxStops, kMaxStopBytes),
            .param = "stop"});
  for (const Json& s : list) r.stop.push_back(s);
}

void read_logprobs(const Body& body, ApiRequest& r) {
  if (r.endpoint == Endpoint::completions) {
    r.top_logprobs = body.integer("logprobs", 0, kMaxLogprobs).value_or(-1);
    return;
  }
  const auto top = body.integer("top_logprobs", 0, kMaxLogprobs);
  if (body.flag("logprobs"))
    r.top_logprobs = top.value_or(0);
  else if (top.value_or(0) > 0)
    refuse({.message = "\"top_logprobs\" needs \"logprobs\": true", .param = "top_logprobs"});
}

void read_stream(const Body& body, ApiRequest& r) {
  r.stream = body.flag("stream");
  const Json* options = body.find("stream_options");
  if (!options) return;
  if (!options->is_object()) refuse({.message = "\"stream_options\" must be an object", .param = "stream_options"});
  if (!r.stream) refuse({.message = "\"stream_options\" needs \"stream\": true", .param = "stream_options"});
  r.include_usage = Body(*options).flag("include_usage");
}

std::size_t read_model(const Body& body, const ServedModels& models) {
  const std::string known = fmt::format("\"model\" must be one of: {}", fmt::join(models.names(), ", "));
  const Json* name = body.find("model");
  if (!name || !name->is_string()) refuse({.message = known, .param = "model"});
  const auto model = models.find(name->get_ref<const std::string&>());
  if (!model)
    throw ApiError(404, {.message = fmt::format("there is no model {}: {}", show(*name), known),
                         .param = "model",
                         .code = "model_not_found"});
  return *model;
}

// Joins the parts in which the text of a message may come.
Json joined_content(const Json& content, const std::string& place) {
  if (content.is_null()) return "";
  if (content.is_string()) return content;
  const auto bad = [&](std::string_view why) {
    refuse(
        {.message = fmt::format("{}: \"content\" must be a string or a list of parts of type \"text\"{}", place, why),
         .param = "messages"});
  };
  if (!content.is_array()) bad("");
  std::string text;
  for (const Json& part : content) {
    if (!part.is_object() || part.value("type", Json()) != "text") bad("; images and sound are not supported");
    if (!part.contains("text") || !part["text"].is_string()) bad("");
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

// Templates expect the arguments of a call as an object, but the API sends them as a string of JSON.
void read_arguments(Json& message, const std::string& place) {
  if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) return;
  for (Json& call : message["tool_calls"]) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    Json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    Json arguments;
    try {
      arguments = parse_json(function["arguments"].get_ref<const std::string&>(), "arguments", kJsonOfClient);
    } catch (const Error&) {
    }
    if (!arguments.is_object())
      refuse({.message = place + ": the \"arguments\" of a tool call must be a string that holds a JSON object",
              .param = "messages"});
    function["arguments"] = std::move(arguments);
  }
}

[[noreturn]] void refuse_length(const std::string& has, const RequestLimits& limits, Endpoint endpoint) {
  refuse({.message = fmt::format("the prompt has {}, but prompt and answer together can have only {} tokens: shorten "
                                 "it, or start the server with a larger --max_context if the model supports that",
                                 has, limits.context),
          .param = endpoint == Endpoint::chat ? "messages" : "prompt",
          .code = "context_length_exceeded"});
}

// Refuses a prompt that is certainly too long before tokenizing it, which would take much longer.
void require_short(const std::string& prompt, const ServedModel& model, const RequestLimits& limits,
                   Endpoint endpoint) {
  if (prompt.size() / model.token_bytes >= static_cast<std::size_t>(limits.context))
    refuse_length(counted(static_cast<std::int64_t>(prompt.size()), "byte"), limits, endpoint);
}

// A message or tool is at least one token, so more of them than the context has room for are refused before they are
// rendered, which would take much longer.
void require_few(const Json* list, const char* key, const RequestLimits& limits) {
  if (!list || list->size() < static_cast<std::size_t>(limits.context)) return;
  refuse_length(counted(static_cast<std::int64_t>(list->size()), key), limits, Endpoint::chat);
}

Json read_messages(const Body& body) {
  const Json* messages = body.find("messages");
  if (!messages || !messages->is_array() || messages->empty())
    refuse({.message = "\"messages\" must be a list of at least one message", .param = "messages"});
  Json out = *messages;
  for (std::size_t i = 0; i < out.size(); ++i) {
    Json& m = out[i];
    const std::string place = fmt::format("messages[{}]", i);
    if (!m.is_object() || !m.contains("role") || !m["role"].is_string())
      refuse({.message = place + " must be an object with a \"role\"", .param = "messages"});
    if (m["role"] == "developer") m["role"] = "system";
    m["content"] = joined_content(m.value("content", Json()), place);
    read_arguments(m, place);
  }
  return out;
}

// The tools that are rendered into the prompt; none with tool_choice "none".
Json read_tools(const Body& body) {
  const Json *tools = body.find("tools"), *choice = body.find("tool_choice");
  if (choice && *choice != "auto" && *choice != "none")
    refuse({.message = "\"tool_choice\" must be \"auto\" or \"none\": the model cannot be forced to call a tool",
            .param = "tool_choice"});
  if (!tools || (choice && *choice == "none")) return {};
  const auto is_object = [](const Json& tool) { return tool.is_object(); };
  if (!tools->is_array() || !std::ranges::all_of(*tools, is_object))
    refuse({.message = "\"tools\" must be a list of objects", .param = "tools"});
  return tools->empty() ? Json() : *tools;
}

// A model that does not see its tools would answer as if there were none.
void require_printed(const ServedModel& model, const ChatPrompt& prompt) {
  if (!model.answers.text.chat_template) return;
  const RenderInput input{.messages = &prompt.messages,
                          .tools = prompt.tools.is_null() ? nullptr : &prompt.tools,
                          .add_generation_prompt = true,
                          .extra = prompt.extra.is_null() ? nullptr : &prompt.extra,
                          .now = model.answers.text.template_clock};
  for (const Unprinted& lost : unprinted_parts(*model.answers.text.chat_template, input)) {
    const bool tools = lost.part == Unprinted::Part::tools;
    if (!tools && lost.part != Unprinted::Part::tool_calls) continue;
    refuse({.message = fmt::format("the chat template of the model cannot render {}: remove them", lost.name()),
            .param = tools ? "tools" : "messages"});
  }
}

void read_chat_prompt(const Body& body, const ServedModel& model, const RequestLimits& limits, ApiRequest& r) {
  if (const Json* format = body.find("response_format"))
    if (!format->is_object() || format->value("type", Json()) != "text")
      refuse({.message = "\"response_format\" must be {\"type\": \"text\"}: other formats are not supported",
              .param = "response_format"});
  const Json* extra = body.find("chat_template_kwargs");
  if (extra && !extra->is_object())
    refuse({.message = "\"chat_template_kwargs\" must be an object", .param = "chat_template_kwargs"});
  require_few(body.find("messages"), "message", limits);
  require_few(body.find("tools"), "tool", limits);
  ChatPrompt prompt{.messages = read_messages(body), .tools = read_tools(body), .extra = extra ? *extra : Json()};
  r.parses_tool_calls = model.parses_tool_calls && !prompt.tools.is_null();
  require_printed(model, prompt);
  const std::string text = render_chat(model.answers.text, prompt);
  require_short(text, model, limits, r.endpoint);
  r.prompts.push_back(encode_rendered(model.answers.text, text));
}

void require_few(std::int64_t answers, const RequestLimits& limits) {
  if (answers > limits.answers)
    refuse({.message = fmt::format("a request can have at most {} answers (the number of prompts times \"n\")",
                                   limits.answers),
            .param = "n"});
}

// A prompt is a string, a list of token ids, or a list of either.
void read_prompts(const Body& body, const ServedModel& model, const RequestLimits& limits, ApiRequest& r) {
  const auto bad = [] {
    refuse({.message = "\"prompt\" must be a string, a list of strings, a list of token ids, or a list of such lists",
            .param = "prompt"});
  };
  const std::int32_t vocabulary = model.answers.text.tokenizer->size();
  const auto is_ids = [](const Json& p) { return p.is_array() && !p.empty() && p.front().is_number(); };
  const auto add = [&](const Json& p) {
    if (p.is_string()) {
      require_short(p, model, limits, r.endpoint);
      r.prompts.push_back(encode_raw(model.answers.text, p));
      return;
    }
    if (!is_ids(p)) bad();
    std::vector<std::int32_t> ids;
    for (const Json& id : p) {
      if (!id.is_number_integer() || id < 0 || id >= vocabulary) bad();
      ids.push_back(id);
    }
    r.prompts.push_back(std::move(ids));
  };
  const Json* prompt = body.find("prompt");
  if (!prompt) bad();
  if (prompt->is_string() || is_ids(*prompt)) return add(*prompt);
  if (!prompt->is_array() || prompt->empty()) bad();
  require_few(static_cast<std::int64_t>(prompt->size()) * r.choices, limits);
  for (const Json& p : *prompt) add(p);
}

void settle_lengths(const Body& body, const RequestLimits& limits, ApiRequest& r) {
  auto limit = body.integer("max_tokens", 1, kMaxTokens);
  if (r.endpoint == Endpoint::chat) {
    const auto newer = body.integer("max_completion_tokens", 1, kMaxTokens);
    if (newer) limit = newer;
  }
  r.max_new_tokens = limit.value_or(limits.max_new_tokens);
  for (const auto& prompt : r.prompts) {
    const auto size = static_cast<std::int64_t>(prompt.size());
    if (size == 0) refuse({.message = "the prompt has no tokens"});
    if (size >= limits.context) refuse_length(counted(size, "token"), limits, r.endpoint);
  }
}

}  // namespace

ApiRequest read_request(Endpoint endpoint, std::string_view text, const ServedModels& models,
                        const RequestLimits& limits) {
  const Json json = parse_json(text, "the body", kJsonOfClient);
  if (!json.is_object()) refuse({.message = "the body must be a JSON object"});
  require_known(json, endpoint);
  const Body body(json);
  ApiRequest r{.endpoint = endpoint, .model = read_model(body, models)};
  const ServedModel& model = models[r.model];
  r.sampling = model.answers.sampling;
  read_sampling(body, r);
  read_stop(body, r);
  read_logprobs(body, r);
  read_stream(body, r);
  r.choices = body.integer("n", 1, limits.answers).value_or(1);
  if (endpoint == Endpoint::chat)
    read_chat_prompt(body, model, limits, r);
  else
    read_prompts(body, model, limits, r);
  settle_lengths(body, limits, r);
  for (const auto& prompt : r.prompts) require_known_tokens(prompt, model.answers.setup.model->config(), "the prompt");
  return r;
}

}  // namespace qtrain::serve
