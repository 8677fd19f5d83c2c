#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "convert/gguf/layout.h"
#include "core/formats/gguf.h"
#include "core/tensor.h"

namespace qtrain {

/// Throws ErrorKind::input with the file as its place.
[[noreturn]] void refuse_gguf(const GgufFile& file, std::string cause);

/// A tensor under its Hugging Face name, made of rows of a tensor in the file.
struct ImportedTensor {
  std::string name;
  const GgufTensor* source = nullptr;
  std::vector<std::int64_t> shape;  ///< [rows, columns] or [values]
  std::int64_t first_row = 0;       ///< first row in the source
  RotaryRows rows;
  double offset = 0;  ///< constant that the source adds to the values

  std::int64_t width() const { return shape.size() > 1 ? shape.back() : rows.head_dim > 0 ? 1 : shape.front(); }
  std::int64_t height() const { return shape.size() > 1 ? shape.front() : shape.front() / width(); }
};

/// All weights of the model, in its order. Throws ErrorKind::input for missing, unknown or misshapen tensors.
std::vector<ImportedTensor> gguf_weights(const GgufFile& file, const ModelConfig& config);

/// The contents of config.json, except the type of the weights, for transformers 4 and 5. Throws ErrorKind::input for
/// an unsupported architecture, for implausible sizes, and for features that no family has (such as partial rotary
/// embeddings).
Json gguf_config(const GgufFile& file);
/// The model config parsed from config.json.
ModelConfig gguf_model_config(const GgufFile& file, const Json& config);
/// The contents of generation_config.json.
Json gguf_generation_config(const GgufFile& file);

/// The contents of tokenizer.json, tokenizer_config.json and special_tokens_map.json.
struct TokenizerFiles {
  std::int64_t tokens = 0;  ///< number of entries in the vocabulary
  Json tokenizer, config, special_tokens;
};
/// Throws ErrorKind::input for an unknown tokenizer model or pre-tokenizer.
TokenizerFiles gguf_tokenizer(const GgufFile& file);

}  // namespace qtrain
