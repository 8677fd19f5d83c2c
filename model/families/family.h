#pragma once
#include <cstdint>
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
  // Defaults of transformers for what a config.json leaves out.
  std::int64_t head_dim = 0;  ///< 0: hidden_size / heads
  const char *activation_key = "hidden_act", *activation = "silu";
  bool ties_head = false;
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

/// Windows of every layer from `layer_types`, or `window` on the layers from `first` on. Other kinds of layers than
/// full_attention and sliding_attention are an input error.
void set_windows(const ConfigReader& fields, ModelConfig& config, std::int64_t window, std::int64_t first);

}  // namespace qtrain
