#pragma once
#include <string>

#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = x / rms(x) * (weight + norm_offset of the model) per row.
struct Norm {
  TensorId x;
  std::string name;       ///< of its module: "input_layernorm"
  std::string gguf = {};  ///< "attn_norm"
};
TensorId norm(LayerBuilder& b, Norm n);

}  // namespace qtrain::stages
