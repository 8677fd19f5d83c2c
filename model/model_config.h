#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "core/param_store.h"
#include "core/tensor.h"
#include "kernels/glu.h"
#include "kernels/router.h"
#include "quant/bnb.h"
#include "quant/fp8.h"

namespace qtrain {

/// Rotary embedding of transformers: `rope_parameters` (v5) or `rope_theta` + `rope_scaling` (v4).
struct RopeConfig {
  enum class Type : std::uint8_t { standard, linear, dynamic, llama3, yarn, longrope };
  Type type = Type::standard;
  double theta = 10000;
  double factor = 1;
  double partial = 1;                                ///< fraction of a head that is rotated: its leading elements
  double original_max_position = 0;                  ///< positions of pre-training (all but linear)
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn
  std::optional<double> attention_factor;            ///< yarn, longrope: multiplies cos and sin; default from factor
  std::optional<double> mscale, mscale_all_dim;      ///< yarn, as DeepSeek writes them
  /// Scales by 1 + this * ln(1 + floor(position / original_max_position)): of queries beyond the length of
  /// pre-training.
  double length_scale = 0;
  bool truncate = true;  ///< yarn: round the correction range to whole dimensions
  /// longrope: divisors of the frequencies, for sequences up to the pre-training length and beyond it.
  std::vector<double> short_factors = {}, long_factors = {};

  /// Number of rotated elements per head.
  std::int64_t dims(std::int64_t head_dim) const {
    return static_cast<std::int64_t>(static_cast<double>(head_dim) * partial);
  }
  /// Whether a batch whose longest sequence has this many tokens uses the long factors.
  bool is_long(std::int64_t longest) const {
    return type == Type::longrope && static_cast<double>(longest) > original_max_position;
  }
};

struct Family;

/// RMS norms of queries and keys.
enum class QkNorm : std::uint8_t {
  none,
  per_head,          ///< before the rotation, weight [head_dim]
  all_heads,         ///< before the rotation, weight [heads * head_dim]
  per_rotated_head,  ///< after the rotation, weight [head_dim]
};

/// What differs between the attention of a model's layers.
struct LayerAttention {
  static constexpr int kNoRotation = -1, kShared = -2;

  std::int64_t window = 0;   ///< sliding window in tokens, 0: full attention
  int rope = 0;              ///< index of its rotary embedding
  int query_rope = kShared;  ///< that of its queries; kShared: the same
};

/// Names of a mixture of experts and its matrices in files and adapter targets.
struct ExpertNames {
  std::string module = "mlp", gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// A mixture of experts in place of an MLP.
struct ExpertsConfig {
  std::int64_t count = 0, per_token = 0, intermediate_size = 0;
  std::int64_t shared_size = 0;  ///< the width of an expert for all tokens, behind a gate; 0: none
  ops::TopKNorm norm = ops::TopKNorm::sum_to_one;
  double swiglu_alpha = 1, swiglu_limit = 0;  ///< for interleaved gates: see ops::PackedGlu
  /// Whether PEFT converts adapters that target the layers of experts to adapters on parameters, as it does if
  /// checkpoints hold each expert's layers separately (except in Qwen2-MoE).
  bool named_apart = true;
  std::vector<bool> layers;  ///< which layers have experts
  ExpertNames names = {};
  double balance_coefficient = 0;  ///< router_aux_loss_coef: weight of the load-balancing loss
  bool is_balanced = false;        ///< output_router_logits: whether transformers' model adds that loss
};

/// A decoder as its Hugging Face config.json describes it: sizes, and what differs between families.
struct ModelConfig {
  const Family* family = nullptr;
  std::string model_type, architecture;
  std::int64_t hidden_size = 0, intermediate_size = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t vocab_size = 0, max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  QkNorm qk_norm = QkNorm::none;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  ops::Activation activation = ops::Activation::silu;  ///< of the MLP's gate
  double norm_offset = 0;                              ///< norms multiply by weight + norm_offset
  double attention_scale = 0;                          ///< of scores; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;                        ///< of scores; 0: none
  bool attention_sinks = false;                        ///< one learned extra score per head
  double embedding_scale = 1, residual_scale = 1;      ///< factors of embeddings, and of branches added to the residual
                                                       ///< stream
  bool rounds_embedding_scale = false;                 ///< embedding_scale is rounded to the dtype of activations
  double logit_scale = 1, logit_softcap = 0;           ///< of logits: softcap tanh(scale z / softcap); 0: no cap
  std::optional<ExpertsConfig> experts;
  std::vector<LayerAttention> attention;  ///< per layer
  std::vector<RopeConfig> ropes;          ///< rotary embeddings, which layers refer to by index
  DType dtype = DType::f32;               ///< of the weights in the folder
  std::vector<std::int32_t> eos_token_ids;
  std::optional<std::int32_t> bos_token_id, pad_token_id;
  std::optional<BnbConfig> quantization;  ///< of the weights in the folder
  /// Whether kernels find the largest magnitudes of the gradients that GEMMs in FP8 read, and of what those of the
  /// forward pass read.
  bool finds_largest = false, finds_largest_x = false;
  std::optional<Fp8Config> fp8;  ///< of the weights in the folder, which are expanded while loading
  Json json;                     ///< the file's content, written with new weights
  /// Whether projections of one input (q, k, v; gate, up) write their results into one tensor: see JoinProjections.
  bool joins_projections = false;

  /// The number of layers with a mixture of experts.
  std::int64_t sparse_layers() const { return experts ? std::ranges::count(experts->layers, true) : 0; }
  /// Whether transformers' model adds the load-balancing loss of its experts.
  bool is_balanced() const { return sparse_layers() > 0 && experts->is_balanced && experts->balance_coefficient != 0; }
  double score_scale() const;
  /// How norm weights are initialized: so that they multiply by 1.
  Init norm_init() const { return {norm_offset == 0 ? Init::Kind::ones : Init::Kind::zeros, 0}; }
  /// The embedding row that starts at zero and gets no gradient from the input, or -1: transformers creates the
  /// embedding with padding_idx = pad_token_id, where -1 means the last row.
  std::int64_t padding_row() const;
};

/// Reads a config.json. Throws an input error that names the key for whatever is not supported exactly (unknown model
/// type, rope type or activation, attention dropout, partial rotary in a family without it, weights quantized in a
/// way that cannot be read, ...).
ModelConfig parse_model_config(const Json& json, const std::string& name);
ModelConfig load_model_config(const std::filesystem::path& folder_or_file);

}  // namespace qtrain
