#pragma once
#include <string>
#include <vector>

#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = x W^T + bias (+ adapter) for each layer. The layers read the same input, so the A of their adapters share one
/// GEMM.
std::vector<TensorId> linear(LayerBuilder& b, TensorId x, const std::vector<LinearId>& layers);
/// A linear layer and its input.
struct LinearOf {
  TensorId x;
  LinearId layer;
};
/// residual + residual_scale * y of one layer: the next state of the residual stream. On GPUs, where projections are
/// joined, the GEMM of the layer adds the residual, unless it is scaled.
TensorId linear_add(LayerBuilder& b, const LinearOf& l, TensorId residual);
/// As `linear`, but with all y side by side in one tensor, so that layers with contiguous weights share one GEMM.
TensorId joined_linear(LayerBuilder& b, TensorId x, const std::vector<LinearId>& layers, const std::string& name);

}  // namespace qtrain::stages
