#pragma once
#include <string>
#include <vector>

#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = x W^T + bias (+ adapter) for each layer. The layers read the same input, so the A of their adapters share one
/// GEMM.
std::vector<TensorId> linear(LayerBuilder& b, TensorId x, const std::vector<LinearId>& layers);
/// Likewise, but with all y side by side in one tensor, so that layers with contiguous weights share one GEMM.
TensorId joined_linear(LayerBuilder& b, TensorId x, const std::vector<LinearId>& layers, const std::string& name);

}  // namespace qtrain::stages
