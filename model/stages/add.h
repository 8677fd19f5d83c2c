#pragma once
#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = residual + residual_scale of the model * branch: the next state of the residual stream.
TensorId add(LayerBuilder& b, TensorId residual, TensorId branch);

}  // namespace qtrain::stages
