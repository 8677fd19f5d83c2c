#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "core/gguf.h"
#include "model/model_config.h"

namespace qtrain {

/// A number that both the hyperparameters of a GGUF file and a config.json hold.
struct GgufKey {
  std::string_view gguf;  ///< behind "ARCHITECTURE.": "attn_logit_softcapping"
  std::string_view json;
  enum class Kind : std::uint8_t { integer, number } kind;
  double (*value)(const ModelConfig& config);  ///< a number of 0 is left out of files
};

/// The value of a key, a member of ModelConfig or of its experts.
template <auto Member>
double config_value(const ModelConfig& config) {
  if constexpr (requires { config.*Member; })
    return static_cast<double>(config.*Member);
  else
    return static_cast<double>((*config.experts).*Member);
}

/// The keys of a mixture's experts, under the names that its config.json has for their count.
constexpr GgufKey expert_count_key(std::string_view json) {
  return {"expert_count", json, GgufKey::Kind::integer, config_value<&ExpertsConfig::count>};
}
inline constexpr GgufKey kExpertsPerTokenKey{"expert_used_count", "num_experts_per_tok", GgufKey::Kind::integer,
                                             config_value<&ExpertsConfig::per_token>};
inline constexpr GgufKey kExpertSizeKey{"expert_feed_forward_length", "moe_intermediate_size", GgufKey::Kind::integer,
                                        config_value<&ExpertsConfig::intermediate_size>};

/// How files of llama.cpp hold a family. Names of its tensors stand beside the parameters of its layers. Source: the
/// models of llama.cpp and its convert_hf_to_gguf.py.
struct GgufFamily {
  std::string_view architecture = {};  ///< empty: there is none
  /// Rows of what is rotated lie with both halves of a head interleaved.
  bool interleaves_rotary = false;
  /// Whether readers scale frequencies by a tensor rope_freqs.weight, as Llama 3.1's rope asks for.
  bool reads_rope_divisors = false;
  /// Every how many layers one attends to all tokens and the others within the window, where a file does not say it.
  /// 0: the window is that of all layers.
  int full_attention_every = 0;
  /// The window where a file does not say it; 0: none.
  std::int64_t window = 0;
  /// Hyperparameters beyond those of every model.
  std::span<const GgufKey> keys = {};
  /// Changes a config.json made of a file to what readers of the file assume, and what transformers writes.
  void (*assume)(Json& config) = nullptr;
  /// The key of a config.json that llama.cpp has no equivalent of, or null.
  const char* (*inexpressible)(const ModelConfig& config) = nullptr;
  /// Whether a file of the architecture is of this family, where several share one; null for the one that has the
  /// others.
  bool (*holds)(const GgufFile& file) = nullptr;
};

/// Whether layer `index` attends to all tokens by full_attention_every.
inline bool attends_fully(const GgufFamily& family, std::int64_t index) {
  return family.full_attention_every > 0 && (index + 1) % family.full_attention_every == 0;
}

}  // namespace qtrain
