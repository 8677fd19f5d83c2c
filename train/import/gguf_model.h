#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/gguf.h"
#include "core/tensor.h"

namespace qtrain {

/// What a GGUF file says about its model, checked.
struct GgufModel {
  std::string architecture;  ///< GGUF's: llama, qwen2, qwen3
  std::int64_t hidden = 0, ffn = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0, context = 0;
  std::int64_t sliding_window = 0;  ///< 0: none
  bool tied = false, attention_bias = false;
};

/// Reads and checks the hyper-parameters. Input errors: another architecture, experts, partial rotary embedding.
GgufModel gguf_model(const GgufFile& file);

/// A tensor under its Hugging Face name. `rotary_heads` > 0: its rows lie in interleaved rotary order within that
/// many heads, as GGUF keeps the query and key projections of the llama architecture.
struct ImportedTensor {
  std::string name;
  const GgufTensor* source = nullptr;
  std::int64_t rotary_heads = 0;
};

/// Every weight of the model, in the order of the model. Input errors: missing, unknown or misshapen tensors.
std::vector<ImportedTensor> gguf_weights(const GgufFile& file, const GgufModel& model);

/// The contents of config.json and generation_config.json, as transformers 4 and 5 read them.
Json gguf_config(const GgufFile& file, const GgufModel& model, DType dtype);
Json gguf_generation_config(const GgufFile& file);

/// The contents of tokenizer.json, tokenizer_config.json and special_tokens_map.json.
/// Input errors: a tokenizer model or pre-tokenizer that is not known.
struct TokenizerFiles {
  Json tokenizer, config, special_tokens;
};
TokenizerFiles gguf_tokenizer(const GgufFile& file, const GgufModel& model);

}  // namespace qtrain
