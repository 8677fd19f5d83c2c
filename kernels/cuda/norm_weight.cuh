#pragma once
#include "kernels/cuda/rows.cuh"

/// The weights of a norm, weight + offset. An addition without a branch: compilers would make two loops of one.
namespace qtrain {

/// What is added: -0 for no offset, which leaves every weight as it is (+0 would make +0 of -0).
inline float added_to_weights(double offset) {
  return offset == 0 ? -0.0f : static_cast<float>(offset);
}

template <int N>
__device__ __forceinline__ void load_weights(float (&w)[N], const float* p, float offset) {
  load_floats(w, p);
#pragma unroll
  for (float& weight : w) weight += offset;
}

}  // namespace qtrain
