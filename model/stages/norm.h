#pragma once
#include <string>

#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = x / rms(x) * (weight + norm_offset) per row, with the model's norm_offset.
struct Norm {
  TensorId x;
  std::string name;       ///< module name: "input_layernorm"
  std::string gguf = {};  ///< "attn_norm"
};
TensorId norm(LayerBuilder& b, Norm n);

}  // namespace qtrain::stages
