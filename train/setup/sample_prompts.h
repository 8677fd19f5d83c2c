#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/generation/generator.h"
#include "train/setup/text_folder.h"

namespace qtrain {

/// The prompts that a run answers at each of its evaluations, as tokens; none where the config names none.
struct SamplePrompts {
  TextFolder text = {};
  std::vector<std::string> shown = {};  ///< the prompts as they are told
  std::vector<GenerationRequest> requests = {};
  std::vector<std::int32_t> stop_tokens = {};

  bool empty() const { return requests.empty(); }
  /// Of greedy answers, few at a time.
  GeneratorOptions generation() const;
  /// The longest prompt with its answer.
  std::int64_t longest(const ModelConfig& model) const { return longest_sequence(requests, model); }
};

/// Prompts of `sample_prompts`, through the chat template if there is one. Errors: those of its file, and a usage error
/// for a prompt that leaves the model no room for an answer.
SamplePrompts load_sample_prompts(const Config& config, const ModelConfig& model);

}  // namespace qtrain
