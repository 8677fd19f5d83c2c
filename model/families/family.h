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

/// A model type of transformers: its fields of config.json beyond the common ones, and its layers.
struct Family {
  std::string_view model_type;
  std::string_view architecture;
  void (*read)(const ConfigReader& fields, ModelConfig& config);
  Layer (*layer)(const ModelConfig& config, std::int64_t index);
  /// What transformers takes for keys that a config.json leaves out, a JSON object: of its configuration class, where
  /// that has other values than parse_model_config.
  const char* defaults = "{}";
  const char *activation_key = "hidden_act", *activation = "silu";
  bool partial_rotary = false;  ///< whether partial_rotary_factor counts
  bool old_longrope = false;    ///< rope_type "su" and "yarn" mean longrope
  bool mxfp4_experts = false;   ///< whether experts may be in MXFP4, which is made dense when it is loaded
  GgufFamily gguf = {};
};

std::span<const Family* const> families();

/// The tables of all layers of a model.
std::vector<Layer> make_layers(const ModelConfig& config);

/// The modules of all linear layers ("model.layers.0.self_attn.q_proj", ...), and the ends of their names, each once.
std::vector<std::string> linear_modules(const ModelConfig& config);
std::vector<std::string> linear_names(const ModelConfig& config);
/// Routers and experts, which adapters reach as parameters: "model.layers.0.mlp.gate",
/// "model.layers.0.mlp.experts.gate_proj".
std::vector<std::string> expert_modules(const ModelConfig& config);

/// The parameters of routers and experts as transformers has them: "model.layers.0.mlp.gate.weight",
/// "model.layers.0.mlp.experts.gate_up_proj".
std::vector<std::string> expert_parameters(const ModelConfig& config);

/// Whether each layer slides, from `layer_types`; nothing without it. Other kinds of layers than full_attention and
/// sliding_attention are an input error.
std::optional<std::vector<bool>> sliding_layer_types(const ConfigReader& fields, const ModelConfig& config);
/// Windows of every layer from `layer_types`, or `window` on the layers from `first` on.
void set_windows(const ConfigReader& fields, ModelConfig& config, std::int64_t window, std::int64_t first);
/// `sliding_window`, or `otherwise` where there is none; 0: null.
std::int64_t read_window(const ConfigReader& fields, std::int64_t otherwise);

/// The experts of a model whose sizes are in range, with the loss that balances them; an input error otherwise, and for
/// noise in routers.
void set_experts(const ConfigReader& fields, ModelConfig& config, ExpertsConfig experts);

}  // namespace qtrain
