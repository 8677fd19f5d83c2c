#pragma once
#include "kernels/cuda/elements.cuh"
#include "kernels/glu.h"

/// The gate of a gated linear unit, shared by glu and packed_glu.
namespace qtrain::ops {

template <class T>
__device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + exp_for<T>(-x));
}

/// s(z(g)) and g z'(g).
template <class T, Activation K>
struct DeviceGate {
  // z(g) = 2 sqrt(2/pi) (g + 0.044715 g^3)
  static constexpr float kLinear = 1.5957691216057308f, kCubic = 0.044715f;
  float s, turn;

  __device__ __forceinline__ explicit DeviceGate(float g) {
    if constexpr (K == Activation::silu) {
      s = sigmoid<T>(g);
      turn = g;
    } else {
      s = sigmoid<T>(kLinear * g * (1.0f + kCubic * (g * g)));
      turn = g * (kLinear * (1.0f + 3.0f * kCubic * (g * g)));
    }
  }
  /// The derivative of g s(z(g)).
  __device__ __forceinline__ float slope() const { return s * (1.0f + turn * (1.0f - s)); }
};

}  // namespace qtrain::ops
