#pragma once
#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = residual + residual_scale * branch, with the model's residual_scale: the next state of the residual stream.
TensorId add(LayerBuilder& b, TensorId residual, TensorId branch);

}  // namespace qtrain::stages
