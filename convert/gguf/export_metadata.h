#pragma once
#include <string>
#include <vector>

#include "core/formats/gguf_write.h"
#include "model/model_config.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// Throws ErrorKind::input for a model that a GGUF file cannot describe; names the key in config.json.
void require_expressible(const ModelConfig& config, const std::string& place);

/// Adds the hyperparameters of the model, and to `notes` what readers of the file do differently.
void put_model(GgufMetadata& metadata, const ModelConfig& config, std::vector<std::string>& notes);

/// Divisors of the inverse frequencies that are equivalent to llama3 rope scaling, one per pair of a head (the tensor
/// rope_freqs.weight); empty for other rope types.
std::vector<float> rope_divisors(const ModelConfig& config);

struct SpecialTokenSource {
  const Tokenizer& tokenizer;
  const ModelConfig& config;  ///< fallback for tokens that the tokenizer does not name
  Json generation;            ///< generation_config.json; {} without one
};
void put_special_tokens(GgufMetadata& metadata, const SpecialTokenSource& from, std::vector<std::string>& notes);

/// Adds the chat templates of a model folder.
void put_templates(GgufMetadata& metadata, const std::filesystem::path& folder);

}  // namespace qtrain
