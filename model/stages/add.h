#pragma once
#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = residual + residual_scale * branch, with the model's residual_scale: the next state of the residual stream.
TensorId add(LayerBuilder& b, TensorId residual, TensorId branch);

/// y = residual + sigmoid(gate) * branch, with one gate [T, 1] per token and without the model's residual_scale.
struct GatedAdd {
  TensorId residual, branch, gate;
};
TensorId gated_add(LayerBuilder& b, const GatedAdd& g);

}  // namespace qtrain::stages
