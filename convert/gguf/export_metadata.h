#pragma once
#include <string>
#include <vector>

#include "core/formats/gguf_write.h"
#include "model/model_config.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// ErrorKind::input for a model that a GGUF file cannot describe, by its key in config.json.
void require_expressible(const ModelConfig& config, const std::string& place);

/// The hyper-parameters of the model. Adds to `notes` what readers of the file do differently.
void put_model(GgufMetadata& metadata, const ModelConfig& config, std::vector<std::string>& notes);

/// The divisors of the inverse frequencies that llama3 rope scaling stands for, one per pair of a head (the tensor
/// rope_freqs.weight); empty for other kinds of rope.
std::vector<float> rope_divisors(const ModelConfig& config);

struct SpecialTokenSource {
  const Tokenizer& tokenizer;
  const ModelConfig& config;  ///< names those that the tokenizer does not
  Json generation;            ///< generation_config.json; {} without one
};
void put_special_tokens(GgufMetadata& metadata, const SpecialTokenSource& from, std::vector<std::string>& notes);

/// The chat templates of a model folder.
void put_templates(GgufMetadata& metadata, const std::filesystem::path& folder);

}  // namespace qtrain
