#pragma once
#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = rotate(head_norm(x)) of queries and keys: each head of `head_dim` is normalized (divided by its RMS and
/// multiplied by a weight) if there are weights, then rotated by the angles of its position.
struct Rotary {
  TensorId q, k;
  VectorId q_weight = VectorId::none, k_weight = VectorId::none;  ///< [head_dim]
  std::int64_t head_dim = 0;
  std::size_t table = 0;  ///< index of the rotary table
};
struct Rotated {
  TensorId q, k;
};
Rotated rotary(LayerBuilder& b, const Rotary& r);

}  // namespace qtrain::stages
