#pragma once
#include <string>
#include <vector>

#include "app/serve/served_models.h"

namespace qtrain::serve {

enum class Endpoint : std::uint8_t { chat, completions };

/// A parsed request of OpenAI's API. Each prompt gets `choices` answers.
struct ApiRequest {
  Endpoint endpoint = Endpoint::chat;
  std::size_t model = 0;
  std::vector<std::vector<std::int32_t>> prompts;
  std::int64_t choices = 1;
  std::int64_t max_new_tokens = 0;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  std::int64_t top_logprobs = -1;  ///< -1: no log-probabilities
  bool stream = false, include_usage = false;
  bool parses_tool_calls = false;
  std::string client = {};  ///< address of the client; clients take turns

  std::size_t answers() const { return prompts.size() * static_cast<std::size_t>(choices); }
};

struct RequestLimits {
  std::int64_t context = 4096;         ///< tokens of prompt and answer
  std::int64_t max_new_tokens = 1024;  ///< default for requests that set no limit
  std::int64_t answers = 64;           ///< most answers to one request
};

/// Parses the body of a request. Throws ApiError for a value that is invalid or not supported, an unknown model (404),
/// and a prompt that is too long.
ApiRequest read_request(Endpoint endpoint, std::string_view body, const ServedModels& models,
                        const RequestLimits& limits);

}  // namespace qtrain::serve
