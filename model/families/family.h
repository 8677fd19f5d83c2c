#pragma once
#include <span>
#include <string_view>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace qtrain {

/// A model type of transformers: its config fields beyond the common ones. All families share one block (stages.h);
/// what differs is data: biases, head norms, windows.
struct Family {
  std::string_view model_type;
  std::string_view architecture;
  void (*read)(const ConfigReader& fields, ModelConfig& config);
};

std::span<const Family* const> families();

extern const Family kLlama, kMistral, kQwen2, kQwen3;

/// Windows of every layer from `layer_types`, or `window` on the layers from `first` on. Other kinds of layers than
/// full_attention and sliding_attention are an input error.
void set_windows(const ConfigReader& fields, ModelConfig& config, std::int64_t window, std::int64_t first);

}  // namespace qtrain
