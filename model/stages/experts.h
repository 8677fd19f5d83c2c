#pragma once
#include <vector>

#include "model/layer/builder.h"

/// A mixture of experts: which experts each token goes to, the experts' matrices applied to their rows, and the
/// weighted sum of the results. Only the device knows the number of rows per expert.
namespace qtrain::stages {

/// A router's decisions, with k = per_token of the model's experts.
struct Routing {
  TensorId weights;        ///< [T, k]: the weight of each choice
  TensorId offsets;        ///< [E + 1]: the rows of each expert
  TensorId slots, places;  ///< [T k]: the choice at each row, and the row of each choice
};
/// Routes tokens by logits [T, E].
Routing route(LayerBuilder& b, TensorId logits);

/// The rows of x, repeated for each of their experts [T k, C], sorted by expert.
TensorId dispatch(LayerBuilder& b, TensorId x, const Routing& routing);

/// y = x W_e^T (+ bias + adapter) for the rows of every expert e: one grouped GEMM per layer.
struct GroupedLinear {
  std::string parameter;  ///< the transformers parameter that holds all layers: "mlp.experts.gate_up_proj"
  TensorId offsets;
  std::vector<ExpertsId> layers;
};
std::vector<TensorId> grouped_linear(LayerBuilder& b, TensorId x, const GroupedLinear& g);

/// The sum [T, C] of the results of each token's experts, weighted.
TensorId combine(LayerBuilder& b, TensorId x, const Routing& routing);

}  // namespace qtrain::stages
