#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config_reader.h"
#include "model/families/gguf_family.h"
#include "model/layer/layer.h"
#include "model/model_config.h"

namespace qtrain {

/// A model type of transformers: how its config.json is read beyond the common fields, and its layers.
struct Family {
  std::string_view model_type;
  std::string_view architecture;
  void (*read)(const ConfigReader& fields, ModelConfig& config);
  Layer (*layer)(const ModelConfig& config, std::int64_t index);
  /// JSON object of the values that transformers' configuration class uses for missing keys, where they differ from
  /// those of parse_model_config.
  const char* defaults = "{}";
  const char *activation_key = "hidden_act", *activation = "silu";
  bool partial_rotary = false;  ///< whether partial_rotary_factor is supported
  bool old_longrope = false;    ///< rope_type "su" and "yarn" mean longrope
  bool mxfp4_experts = false;   ///< whether experts may be stored in MXFP4, which is expanded when it is loaded
  GgufFamily gguf = {};
};

std::span<const Family* const> families();

/// The tables of all layers of a model.
std::vector<Layer> make_layers(const ModelConfig& config);

/// The modules of all linear layers ("model.layers.0.self_attn.q_proj", ...), and the distinct last parts of their
/// names.
std::vector<std::string> linear_modules(const ModelConfig& config);
std::vector<std::string> linear_names(const ModelConfig& config);
/// Routers and experts, which adapters treat as parameters: "model.layers.0.mlp.gate",
/// "model.layers.0.mlp.experts.gate_proj".
std::vector<std::string> expert_modules(const ModelConfig& config);

/// The parameters of routers and experts as named in transformers: "model.layers.0.mlp.gate.weight",
/// "model.layers.0.mlp.experts.gate_up_proj".
std::vector<std::string> expert_parameters(const ModelConfig& config);

/// Whether each layer has a sliding window, from `layer_types`; nothing if that is missing. Throws an input error for
/// kinds of layers other than full_attention and sliding_attention.
std::optional<std::vector<bool>> sliding_layer_types(const ConfigReader& fields, const ModelConfig& config);
/// Sets the windows of all layers from `layer_types`, or `window` for layers from `first` on if that is missing.
void set_windows(const ConfigReader& fields, ModelConfig& config, std::int64_t window, std::int64_t first);
/// Sets the windows: all layers except every `full`-th slide, unless layer_types says otherwise. Returns whether each
/// does.
std::vector<bool> set_windows_but_every(std::int64_t full, const ConfigReader& fields, ModelConfig& config);
/// The window of families that have one, if a file does not say so.
inline constexpr std::int64_t kUsualWindow = 4096;
/// `sliding_window`, or `otherwise` if it is missing; 0 if it is null.
std::int64_t read_window(const ConfigReader& fields, std::int64_t otherwise);

/// Which layers have experts: all except those in mlp_only_layers and those that decoder_sparse_step skips.
std::vector<bool> sparse_layers(const ConfigReader& fields, const ModelConfig& config);

/// Sets the model's experts, with the load-balancing loss. Throws an input error for sizes out of range and for router
/// noise.
void set_experts(const ConfigReader& fields, ModelConfig& config, ExpertsConfig experts);

}  // namespace qtrain
