#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/generation/generator.h"
#include "train/setup/text_folder.h"

namespace qtrain {

/// The tokenized prompts that a run answers at each evaluation; empty if the config has none.
struct SamplePrompts {
  TextFolder text = {};
  std::vector<std::string> shown = {};  ///< the prompts as they are displayed
  std::vector<GenerationRequest> requests = {};
  std::vector<std::int32_t> stop_tokens = {};

  bool empty() const { return requests.empty(); }
  /// Options for greedy answers in small batches.
  GeneratorOptions generation() const;
  /// Token count of the longest prompt plus answer.
  std::int64_t longest(const ModelConfig& model) const { return longest_sequence(requests, model); }
};

/// Loads `sample_prompts` and applies the chat template if there is one. Throws as reading its file does, and
/// ErrorKind::usage for a prompt that leaves no room for an answer.
SamplePrompts load_sample_prompts(const Config& config, const ModelConfig& model);

}  // namespace qtrain
