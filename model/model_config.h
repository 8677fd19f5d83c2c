#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/tensor.h"
#include "quant/bnb.h"

namespace qtrain {

/// Rotary embedding of transformers: `rope_parameters` (v5) or `rope_theta` + `rope_scaling` (v4).
struct RopeConfig {
  enum class Type : std::uint8_t { standard, linear, dynamic, llama3, yarn };
  Type type = Type::standard;
  double theta = 10000;
  double factor = 1;
  double original_max_position = 0;                  ///< positions of pre-training (dynamic, llama3, yarn)
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn
  std::optional<double> attention_factor;            ///< yarn: multiplies cos and sin; default from factor
  std::optional<double> mscale, mscale_all_dim;      ///< yarn, as DeepSeek writes them
  bool truncate = true;                              ///< yarn: round the correction range to whole dimensions
};

/// What a decoder of the Llama family is, from a Hugging Face config.json.
struct ModelConfig {
  std::string model_type, architecture;
  std::int64_t hidden_size = 0, intermediate_size = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t vocab_size = 0, max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  bool qk_norm = false;  ///< RMS norm of each query and key head before the rotation
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  std::vector<std::int64_t> windows;  ///< per layer: sliding window in tokens, 0 = full attention
  RopeConfig rope;
  DType dtype = DType::f32;  ///< of the weights in the folder
  std::vector<std::int32_t> eos_token_ids;
  std::optional<std::int32_t> bos_token_id, pad_token_id;
  std::optional<BnbConfig> quantization;  ///< of the weights in the folder
  Json json;                              ///< the file as it was, to be written beside new weights

  std::int64_t group_size() const { return heads / kv_heads; }
  /// Row of the embedding that starts at zero and gets no gradient from the input, or -1: transformers makes the
  /// embedding with padding_idx = pad_token_id, where -1 is the last row.
  std::int64_t padding_row() const;
};

/// Reads a config.json. What cannot be honored exactly (unknown model type, rope type or activation, attention
/// dropout, partial rotary, weights quantized by anything but bitsandbytes, ...) is an input error that names the key.
ModelConfig parse_model_config(const Json& json, const std::string& name);
ModelConfig load_model_config(const std::filesystem::path& folder_or_file);

}  // namespace qtrain
