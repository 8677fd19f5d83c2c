#include "app/serve/replies.h"

#include <fmt/format.h>

#include <chrono>
#include <random>
#include <utility>

#include "core/version.h"
#include "text/tokenizer/unicode.h"

namespace qtrain::serve {
namespace {

Json bytes_of(const std::string& bytes) {
  Json out = Json::array();
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

// OpenAI's name for a token that is not valid UTF-8 by itself: "bytes:\\xe2\\x80".
std::string name_of_candidate(const TextToken::Candidate& candidate) {
  if (is_utf8(candidate.bytes)) return candidate.text;
  std::string name = "bytes:";
  for (const char c : candidate.bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

// Log-probabilities by name. If two tokens have the same text, the second is named by its id, as in vLLM.
Json named_candidates(const std::vector<TextToken::Candidate>& candidates) {
  Json out = Json::object();
  for (const TextToken::Candidate& c : candidates) {
    std::string name = name_of_candidate(c);
    if (out.contains(name)) name = fmt::format("token_id:{}", c.id);
    out[name] = c.logprob;
  }
  return out;
}

Json usage_of(const AnswersOfRequest& answers) {
  const std::int64_t prompt = answers.prompt_tokens(), answer = answers.answer_tokens();
  return {{"prompt_tokens", prompt}, {"completion_tokens", answer}, {"total_tokens", prompt + answer}};
}

}  // namespace

std::string random_name() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}", device(), device(), device());
}

Replies::Replies(const ApiRequest& request, std::string model)
    : request_(request),
      model_(std::move(model)),
      id_((is_chat() ? "chatcmpl-" : "cmpl-") + random_name()),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      answers_(request.answers()) {}

Json Replies::head(const char* object) const {
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_},
          {"system_fingerprint", fmt::format("qtrain-{}", kVersion)}};
}

Json Replies::tool_call(const ToolCall& call, std::size_t answer, std::size_t number) const {
  return {{"id", fmt::format("call_{}_{}_{}", id_.substr(id_.find('-') + 1), answer, number)},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

Json Replies::logprobs(const std::vector<TextToken>& tokens, std::int64_t& offset) const {
  if (request_.top_logprobs < 0) return {};
  if (is_chat()) {
    Json content = Json::array();
    for (const TextToken& t : tokens) {
      Json top = Json::array();
      for (const TextToken::Candidate& c : t.top)
        top.push_back({{"token", c.text}, {"logprob", c.logprob}, {"bytes", bytes_of(c.bytes)}});
      content.push_back(
          {{"token", t.text}, {"logprob", t.logprob}, {"bytes", bytes_of(t.bytes)}, {"top_logprobs", std::move(top)}});
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }
  Json out{{"tokens", Json::array()},
           {"token_logprobs", Json::array()},
           {"top_logprobs", Json::array()},
           {"text_offset", Json::array()}};
  for (const TextToken& t : tokens) {
    out["tokens"].push_back(t.text);
    out["token_logprobs"].push_back(t.logprob);
    out["top_logprobs"].push_back(named_candidates(t.top));
    out["text_offset"].push_back(offset);
    offset += static_cast<std::int64_t>(t.text.size());
  }
  return out;
}

Replies::Part Replies::read(const AnswerEvent& event) {
  ToolCallReader& reader = answers_[event.answer].calls_in_text;
  Part part{.text = event.piece.text, .tokens = event.piece.tokens};
  if (request_.parses_tool_calls) {
    ToolCallReader::Found found = reader.push(event.piece.text);
    part.text = std::move(found.text);
    part.calls = std::move(found.calls);
    if (event.finish) {
      found = reader.finish();
      part.text += found.text;
      part.calls.insert(part.calls.end(), found.calls.begin(), found.calls.end());
    }
  }
  if (event.finish) part.finish = reader.has_calls() ? "tool_calls" : name_of_finish(*event.finish);
  return part;
}

Json Replies::chunk(std::size_t answer, Json delta, const Json& finish) const {
  Json out = head(is_chat() ? "chat.completion.chunk" : "text_completion");
  Json choice{{"index", answer}};
  if (is_chat())
    choice["delta"] = std::move(delta);
  else
    choice["text"] = std::move(delta);
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = finish;
  out["choices"] = Json::array({std::move(choice)});
  if (request_.include_usage) out["usage"] = nullptr;
  return out;
}

std::vector<Json> Replies::first_chunks() const {
  std::vector<Json> out;
  for (std::size_t i = 0; is_chat() && i < answers_.size(); ++i)
    out.push_back(chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr));
  return out;
}

std::vector<Json> Replies::chunks(const AnswerEvent& event) {
  Answer& answer = answers_[event.answer];
  const Part part = read(event);
  std::vector<Json> out;
  if (!part.text.empty() || !part.tokens.empty()) {
    Json c = chunk(event.answer, is_chat() ? Json{{"content", part.text}} : Json(part.text), nullptr);
    c["choices"][0]["logprobs"] = logprobs(part.tokens, answer.text_offset);
    if (!part.text.empty() || request_.top_logprobs >= 0) out.push_back(std::move(c));
  }
  for (const ToolCall& call : part.calls) {
    Json c = tool_call(call, event.answer, answer.sent_calls);
    c["index"] = answer.sent_calls++;
    out.push_back(chunk(event.answer, {{"tool_calls", Json::array({std::move(c)})}}, nullptr));
  }
  if (!part.finish.empty()) out.push_back(chunk(event.answer, is_chat() ? Json::object() : Json(""), part.finish));
  return out;
}

Json Replies::usage_chunk(const AnswersOfRequest& answers) const {
  Json out = head(is_chat() ? "chat.completion.chunk" : "text_completion");
  out["choices"] = Json::array();
  out["usage"] = usage_of(answers);
  return out;
}

void Replies::collect(const AnswerEvent& event) {
  Answer& answer = answers_[event.answer];
  Part part = read(event);
  answer.text += part.text;
  answer.calls.insert(answer.calls.end(), part.calls.begin(), part.calls.end());
  answer.tokens.insert(answer.tokens.end(), part.tokens.begin(), part.tokens.end());
  if (!part.finish.empty()) answer.finish = part.finish;
}

Json Replies::document(const AnswersOfRequest& answers) const {
  Json choices = Json::array();
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    const Answer& answer = answers_[i];
    Json choice{{"index", i}};
    if (is_chat()) {
      Json message{{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
      if (!answer.calls.empty()) {
        if (answer.text.empty()) message["content"] = nullptr;
        for (std::size_t c = 0; c < answer.calls.size(); ++c)
          message["tool_calls"].push_back(tool_call(answer.calls[c], i, c));
      }
      choice["message"] = std::move(message);
    } else {
      choice["text"] = answer.text;
    }
    std::int64_t offset = 0;
    choice["logprobs"] = logprobs(answer.tokens, offset);
    choice["finish_reason"] = answer.finish;
    choices.push_back(std::move(choice));
  }
  Json out = head(is_chat() ? "chat.completion" : "text_completion");
  out["choices"] = std::move(choices);
  out["usage"] = usage_of(answers);
  return out;
}

}  // namespace qtrain::serve
