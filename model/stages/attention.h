#pragma once
#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = softmax(scale * q k^T) v within each segment, causal, over the last `window` keys; in generation against the
/// layer's key/value cache. With a softcap the scores are softcap * tanh(score / softcap); a sink is one more score per
/// head, whose value is zero.
struct Attention {
  TensorId q, k, v;
  std::int64_t head_dim = 0;
  std::int64_t window = 0;  ///< 0: all earlier keys
  double scale = 1;
  double softcap = 0;               ///< 0: none
  VectorId sinks = VectorId::none;  ///< [heads of q]
};
TensorId attention(LayerBuilder& b, Attention a);

}  // namespace qtrain::stages
