#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/gguf/layout.h"
#include "core/gguf.h"
#include "core/tensor.h"

namespace qtrain {

/// An input error that names the file.
[[noreturn]] void refuse_gguf(const GgufFile& file, std::string cause);

/// Reads and checks the hyper-parameters. Input errors: another architecture, experts, partial rotary embedding.
GgufModel gguf_model(const GgufFile& file);

/// A tensor under its Hugging Face name.
struct ImportedTensor {
  std::string name;
  const GgufTensor* source = nullptr;
  RotaryRows rows;
};

/// Every weight of the model, in the order of the model. Input errors: missing, unknown or misshapen tensors.
std::vector<ImportedTensor> gguf_weights(const GgufFile& file, const GgufModel& model);

/// The contents of config.json and generation_config.json, as transformers 4 and 5 read them.
Json gguf_config(const GgufFile& file, const GgufModel& model, DType dtype);
Json gguf_generation_config(const GgufFile& file);

/// The contents of tokenizer.json, tokenizer_config.json and special_tokens_map.json.
struct TokenizerFiles {
  std::int64_t tokens = 0;  ///< entries of the vocabulary
  Json tokenizer, config, special_tokens;
};
/// Input errors: a tokenizer model or pre-tokenizer that is not known.
TokenizerFiles gguf_tokenizer(const GgufFile& file);

}  // namespace qtrain
