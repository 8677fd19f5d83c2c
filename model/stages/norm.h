#pragma once
#include <cstdint>
#include <string>

#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = x / rms(x) * (weight + norm_offset) per row, with the model's norm_offset.
struct Norm {
  TensorId x;
  std::string name;       ///< module name: "input_layernorm"
  std::string gguf = {};  ///< "attn_norm"
  /// If above 0, each part of a row with that many elements is normalized on its own, with the same weight [head_dim].
  std::int64_t head_dim = 0;
};
TensorId norm(LayerBuilder& b, Norm n);

}  // namespace qtrain::stages
