#pragma once
#include "kernels/cuda/elements.cuh"

namespace qtrain {

/// Logits as a loss or a sampler sees them: cap * tanh(scale * z / cap), scale * z where cap is 0.
struct LogitCap {
  float scale, cap, tanh_scale;

  LogitCap(double scale_, double cap_)
      : scale(static_cast<float>(scale_)),
        cap(static_cast<float>(cap_)),
        tanh_scale(static_cast<float>(cap_ > 0 ? scale_ / cap_ : 0)) {}

  /// In the precision that values stored as T ask for.
  template <class T>
  __device__ __forceinline__ float value(float z) const {
    return cap > 0 ? cap * tanh_for<T>(tanh_scale * z) : scale * z;
  }
  /// Of the value by z.
  __device__ __forceinline__ float slope(float value) const {
    if (!(cap > 0)) return scale;
    const float t = __fdividef(value, cap);
    return scale * (1.0f - t * t);
  }
};

}  // namespace qtrain
