#pragma once
#include <vector>

#include "model/layer/builder.h"

/// A mixture of experts: which experts a token goes to, their matrices over the rows that they get, and the weighted
/// sum of what they give. How many rows an expert has is known on the device alone.
namespace qtrain::stages {

/// What a router decided, with k = per_token of the model's experts.
struct Routing {
  TensorId weights;        ///< [T, k]: what each choice counts
  TensorId offsets;        ///< [E + 1]: the rows of each expert
  TensorId slots, places;  ///< [T k]: which choice is at each row, and the row of each choice
};
/// Of logits [T, E].
Routing route(LayerBuilder& b, TensorId logits);

/// The rows of x once for each of their experts [T k, C], an expert's rows together.
TensorId dispatch(LayerBuilder& b, TensorId x, const Routing& routing);

/// y = x W_e^T (+ bias + adapter) for the rows of every expert e: one grouped GEMM for each of the layers.
struct GroupedLinear {
  std::string parameter;  ///< as transformers calls all layers in one: "mlp.experts.gate_up_proj"
  TensorId offsets;
  std::vector<ExpertsId> layers;
};
std::vector<TensorId> grouped_linear(LayerBuilder& b, TensorId x, const GroupedLinear& g);

/// The sum [T, C] of the rows of a token's experts by their weights.
TensorId combine(LayerBuilder& b, TensorId x, const Routing& routing);

}  // namespace qtrain::stages
