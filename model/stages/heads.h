#pragma once
#include "core/tensor.h"

namespace qtrain::stages {

/// Views [T, heads * head_dim] as [T, heads, head_dim].
inline Tensor as_heads(Tensor t, std::int64_t head_dim) {
  return t.reshaped({t.shape[0], t.shape[1] / head_dim, head_dim});
}

}  // namespace qtrain::stages
