#pragma once
#include <functional>
#include <string>
#include <vector>

#include "app/serve/answers_of_request.h"
#include "app/serve/tool_calls.h"

namespace qtrain::serve {

/// A unique name for a request.
std::string random_name();

/// The documents of OpenAI's API for the answers to one request: one at the end, or chunks while they are generated.
class Replies {
 public:
  Replies(const ApiRequest& request, std::string model);

  /// Chunks of a stream: those before the first event, and those of an event.
  std::vector<Json> first_chunks() const;
  std::vector<Json> chunks(const AnswerEvent& event);
  Json usage_chunk(const AnswersOfRequest& answers) const;

  /// The same in one document: collects every event and builds the document at the end.
  void collect(const AnswerEvent& event);
  Json document(const AnswersOfRequest& answers) const;

 private:
  /// The part of a chunk for one event of an answer.
  struct Part {
    std::string text;
    std::vector<ToolCall> calls = {};
    std::vector<TextToken> tokens = {};
    std::string finish = {};
  };
  struct Answer {
    ToolCallReader calls_in_text;
    std::string text;
    std::vector<ToolCall> calls = {};
    std::vector<TextToken> tokens = {};
    std::string finish = {};
    std::size_t sent_calls = 0;
    std::int64_t text_offset = 0;  ///< of the next token, for /v1/completions
  };
  bool is_chat() const { return request_.endpoint == Endpoint::chat; }
  Part read(const AnswerEvent& event);
  Json head(const char* object) const;
  Json chunk(std::size_t answer, Json delta, const Json& finish) const;
  Json logprobs(const std::vector<TextToken>& tokens, std::int64_t& offset) const;
  Json tool_call(const ToolCall& call, std::size_t answer, std::size_t number) const;

  ApiRequest request_;
  std::string model_, id_;
  std::int64_t created_;
  std::vector<Answer> answers_;
};

}  // namespace qtrain::serve
