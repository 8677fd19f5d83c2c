#pragma once
#include <string>
#include <vector>

#include "app/serve/served_models.h"

namespace qtrain::serve {

enum class Endpoint : std::uint8_t { chat, completions };

/// A request of OpenAI's API as it is answered: each prompt `choices` times.
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
  std::string client = {};  ///< whom it comes from, among whom places go round

  std::size_t answers() const { return prompts.size() * static_cast<std::size_t>(choices); }
};

struct RequestLimits {
  std::int64_t context = 4096;         ///< tokens of prompt and answer
  std::int64_t max_new_tokens = 1024;  ///< where a request does not say
  std::int64_t answers = 64;           ///< of one request
};

/// Reads the body of a request. ApiError: a value that is not understood or not supported, a model that is not there
/// (404), a prompt that is too long.
ApiRequest read_request(Endpoint endpoint, std::string_view body, const ServedModels& models,
                        const RequestLimits& limits);

}  // namespace qtrain::serve
