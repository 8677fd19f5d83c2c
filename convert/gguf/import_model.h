#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "convert/gguf/layout.h"
#include "core/formats/gguf.h"
#include "core/tensor.h"

namespace qtrain {

/// An input error that names the file.
[[noreturn]] void refuse_gguf(const GgufFile& file, std::string cause);

/// A tensor under its Hugging Face name: rows of one of the file.
struct ImportedTensor {
  std::string name;
  const GgufTensor* source = nullptr;
  std::vector<std::int64_t> shape;  ///< [rows, columns] or [values]
  std::int64_t first_row = 0;       ///< in the source
  RotaryRows rows;
  double offset = 0;  ///< what the source adds to the values

  std::int64_t width() const { return shape.size() > 1 ? shape.back() : rows.head_dim > 0 ? 1 : shape.front(); }
  std::int64_t height() const { return shape.size() > 1 ? shape.front() : shape.front() / width(); }
};

/// Every weight of the model, in the order of the model. Input errors: missing, unknown or misshapen tensors.
std::vector<ImportedTensor> gguf_weights(const GgufFile& file, const ModelConfig& config);

/// The contents of config.json but for the type of the weights, and of generation_config.json, as transformers 4 and 5
/// read them. Input errors: another architecture, sizes that make no sense, what no family has (a rotary embedding of
/// a part of each head).
Json gguf_config(const GgufFile& file);
/// What config.json says, read as that of any folder.
ModelConfig gguf_model_config(const GgufFile& file, const Json& config);
Json gguf_generation_config(const GgufFile& file);

/// The contents of tokenizer.json, tokenizer_config.json and special_tokens_map.json.
struct TokenizerFiles {
  std::int64_t tokens = 0;  ///< entries of the vocabulary
  Json tokenizer, config, special_tokens;
};
/// Input errors: a tokenizer model or pre-tokenizer that is not known.
TokenizerFiles gguf_tokenizer(const GgufFile& file);

}  // namespace qtrain
