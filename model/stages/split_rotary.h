#pragma once
#include "model/layer/builder.h"

namespace qtrain::stages {

/// Queries, keys and values of one projection x [T, (heads + 2 kv_heads) * head_dim] as three tensors, queries and keys
/// turned by the angles of their positions.
struct SplitRotary {
  TensorId x;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::size_t table = 0;  ///< number of the rotary table
};
struct SplitHeads {
  TensorId q, k, v;
};
SplitHeads split_rotary(LayerBuilder& b, const SplitRotary& s);

}  // namespace qtrain::stages
