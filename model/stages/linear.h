#pragma once
#include <vector>

#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = x W^T + bias (+ adapter) of each layer: they read one input, so that the A of their adapters are one GEMM.
std::vector<TensorId> linear(LayerBuilder& b, TensorId x, const std::vector<LinearId>& layers);

}  // namespace qtrain::stages
