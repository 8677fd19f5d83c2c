#pragma once
#include "kernels/cuda/rows.cuh"

/// The weights of a norm, weight + offset. Always adds, without a branch: for a branch, compilers would duplicate the
/// loop.
namespace qtrain {

/// The number to add: -0 without an offset, which preserves every weight (+0 would turn -0 into +0).
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
