#pragma once
#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = rotate(head_norm(x)): each head of `head_dim` is normalized (divided by its RMS and multiplied by a weight) if
/// there is a weight, then rotated by the angles of its position.
struct Rotary {
  TensorId x;
  VectorId weight = VectorId::none;  ///< [head_dim]
  std::int64_t head_dim = 0;
  std::size_t table = 0;  ///< index of the rotary table
};
TensorId rotary(LayerBuilder& b, Rotary r);

}  // namespace qtrain::stages
