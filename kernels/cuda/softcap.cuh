#pragma once
#include "kernels/cuda/elements.cuh"

namespace qtrain {

/// Logits as the loss or sampler uses them: cap * tanh(scale * z / cap), or scale * z if cap is 0.
struct LogitCap {
  float scale, cap, tanh_scale;

  LogitCap(double scale_, double cap_)
      : scale(static_cast<float>(scale_)),
        cap(static_cast<float>(cap_)),
        tanh_scale(static_cast<float>(cap_ > 0 ? scale_ / cap_ : 0)) {}

  /// In the precision that values stored as T need.
  template <class T>
  __device__ __forceinline__ float value(float z) const {
    return cap > 0 ? cap * tanh_for<T>(tanh_scale * z) : scale * z;
  }
  /// The derivative of the value with respect to z.
  __device__ __forceinline__ float slope(float value) const {
    if (!(cap > 0)) return scale;
    const float t = __fdividef(value, cap);
    return scale * (1.0f - t * t);
  }
};

}  // namespace qtrain
