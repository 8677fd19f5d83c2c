#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "core/formats/gguf.h"
#include "model/model_config.h"

namespace qtrain {

/// A number that exists in both a GGUF file's hyperparameters and config.json.
struct GgufKey {
  std::string_view gguf;  ///< without the prefix "ARCHITECTURE.": "attn_logit_softcapping"
  std::string_view json;
  enum class Kind : std::uint8_t { integer, number } kind;
  double (*value)(const ModelConfig& config);  ///< the value; 0 is not written
};

/// The value of a member of ModelConfig or of its ExpertsConfig.
template <auto Member>
double config_value(const ModelConfig& config) {
  if constexpr (requires { config.*Member; })
    return static_cast<double>(config.*Member);
  else
    return static_cast<double>((*config.experts).*Member);
}

/// The keys of a mixture of experts; `json` is the family's config.json name for the number of experts.
constexpr GgufKey expert_count_key(std::string_view json) {
  return {"expert_count", json, GgufKey::Kind::integer, config_value<&ExpertsConfig::count>};
}
inline constexpr GgufKey kExpertsPerTokenKey{"expert_used_count", "num_experts_per_tok", GgufKey::Kind::integer,
                                             config_value<&ExpertsConfig::per_token>};
inline constexpr GgufKey kExpertSizeKey{"expert_feed_forward_length", "moe_intermediate_size", GgufKey::Kind::integer,
                                        config_value<&ExpertsConfig::intermediate_size>};

/// How files of llama.cpp represent a family. Names of tensors are given with the parameters of its layers. Source: the
/// models of llama.cpp and its convert_hf_to_gguf.py.
struct GgufFamily {
  std::string_view architecture = {};  ///< empty: llama.cpp does not support the family
  /// Whether the rows of rotated projections have both halves of a head interleaved.
  bool interleaves_rotary = false;
  /// Whether readers divide frequencies by a tensor rope_freqs.weight, as Llama 3.1's rope requires.
  bool reads_rope_divisors = false;
  /// Every N-th layer attends to all tokens and the others within the window, if a file does not say so. 0: the window
  /// applies to all layers.
  int full_attention_every = 0;
  /// The window if a file does not state it; 0: none.
  std::int64_t window = 0;
  /// Hyperparameters besides those that every model has.
  std::span<const GgufKey> keys = {};
  /// Adjusts a config.json that was made from a file to what readers of the file assume and transformers writes.
  void (*assume)(Json& config) = nullptr;
  /// A key of config.json that llama.cpp has no equivalent for, or null.
  const char* (*inexpressible)(const ModelConfig& config) = nullptr;
  /// Whether a file of the architecture is of this family, if several families share it; null for the family that takes
  /// the rest.
  bool (*holds)(const GgufFile& file) = nullptr;
};

/// Whether layer `index` attends to all tokens according to full_attention_every.
inline bool attends_fully(const GgufFamily& family, std::int64_t index) {
  return family.full_attention_every > 0 && (index + 1) % family.full_attention_every == 0;
}

}  // namespace qtrain
