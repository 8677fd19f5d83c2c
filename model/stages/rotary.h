#pragma once
#include <optional>

#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = rotate(head_norm(x)) of queries and keys: each head of `head_dim` is normalized (divided by its RMS and
/// multiplied by a weight) if there are weights, then rotated by the angles of its position.
struct Rotary {
  TensorId q, k;
  VectorId q_weight = VectorId::none, k_weight = VectorId::none;  ///< [head_dim]
  std::int64_t head_dim = 0;
  std::size_t table = 0;                   ///< index of the rotary table
  std::optional<std::size_t> query_table;  ///< of queries, if it differs
};
struct Rotated {
  TensorId q, k;
};
Rotated rotary(LayerBuilder& b, const Rotary& r);

struct SplitHeads {
  TensorId q, k, v;
};
/// Likewise for queries, keys and values in one tensor x [T, (heads + 2 kv_heads) * head_dim], which are split into
/// three.
struct JoinedRotary {
  TensorId x;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  VectorId q_weight = VectorId::none, k_weight = VectorId::none;  ///< [head_dim]
  std::size_t table = 0;                                          ///< index of the rotary table
  std::optional<std::size_t> query_table;                         ///< of queries, if it differs
};
SplitHeads joined_rotary(LayerBuilder& b, const JoinedRotary& r);

/// Splits queries, keys and values of one projection x [T, (heads + 2 kv_heads) * head_dim] into three tensors, with
/// queries and keys rotated by the angles of their positions. A rotation may cover only the first part of each head.
struct SplitRotary {
  TensorId x;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::size_t table = 0;  ///< index of the rotary table
};
SplitHeads split_rotary(LayerBuilder& b, const SplitRotary& s);

}  // namespace qtrain::stages
