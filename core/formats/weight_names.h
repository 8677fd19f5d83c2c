#pragma once
#include <string_view>

namespace qtrain {

/// Whether a model folder has weights under this name: one file, or shards and their index.
inline bool is_weight_file(std::string_view name) {
  return name == "model.safetensors" || name == "model.safetensors.index.json" ||
         (name.starts_with("model-") && name.ends_with(".safetensors") && name.find("-of-") != name.npos);
}

}  // namespace qtrain
