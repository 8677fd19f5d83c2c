#pragma once
#include "core/fp8.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/fp8.h"

/// What the kernels that encode matrices in FP8 share.
namespace qtrain::ops {

/// A floating-point matrix whose rows are `step` elements apart.
template <class T>
struct Fp8Source {
  const T* data;
  std::int64_t rows, width, step;

  /// Loads N elements of a row; those past its end are 0.
  template <int N, Packs P>
  __device__ __forceinline__ void load(float (&v)[N], std::int64_t row, std::int64_t column) const {
    const T* from = data + row * step + column;
    if constexpr (P == Packs::yes) {
      constexpr int kPack = N < kPackOf<T> ? N : kPackOf<T>;
#pragma unroll
      for (int first = 0; first < N; first += kPack) {
        const bool inside = column + first < width;
        Pack<T, kPack> pack{};
        if (inside) pack = load_pack<kPack>(from + first);
#pragma unroll
        for (int j = 0; j < kPack; ++j) v[first + j] = inside ? to_float(pack.v[j]) : 0.0f;
      }
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = column + j < width ? to_float(from[j]) : 0.0f;
    }
  }
};

/// The scale for values whose largest magnitude is `amax`.
__device__ __forceinline__ float fp8_scale(float amax, float largest) {
  const float used = amax > kLeastFp8Max ? amax : kLeastFp8Max;
  return amax - amax == 0 ? used / largest : amax - amax;  // Inf - Inf and NaN - NaN are NaN
}

/// The codes of values times a factor.
template <class F, int N>
__device__ __forceinline__ Pack<std::uint8_t, N> fp8_codes(const float (&v)[N], float factor) {
  Pack<std::uint8_t, N> out;
#pragma unroll
  for (int j = 0; j < N; j += 2) {
    const std::uint32_t pair = ptx::fp8_pair<F>(v[j] * factor, v[j + 1] * factor);
    out.v[j] = static_cast<std::uint8_t>(pair);
    out.v[j + 1] = static_cast<std::uint8_t>(pair >> 8);
  }
  return out;
}

/// ToFp8 with a scale per vector or square.
void encode_blocks_fp8(Ctx& ctx, const ToFp8& a);

}  // namespace qtrain::ops
