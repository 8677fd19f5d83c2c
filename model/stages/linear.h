#pragma once
#include <vector>

#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = x W^T + bias (+ adapter) for each layer. The layers read the same input, so the A of their adapters share one
/// GEMM.
std::vector<TensorId> linear(LayerBuilder& b, TensorId x, const std::vector<LinearId>& layers);

}  // namespace qtrain::stages
