#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "core/half.h"

/// Additions to the CUDA language for kernels. Counterpart of emulator/target/intrinsics.cuh.
namespace qtrain {

extern __shared__ __align__(1024) unsigned char dynamic_shared_memory[];

/// The block's shared memory as a T, uninitialized. Launch with at least sizeof(T) bytes.
template <class T>
__device__ __forceinline__ T& shared_memory() {
  static_assert(std::is_trivially_destructible_v<T>);
  return *reinterpret_cast<T*>(dynamic_shared_memory);
}

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(Bf16 x) {
  return __uint_as_float(std::uint32_t{x.bits} << 16);
}
__device__ __forceinline__ float to_float(F16 x) {
  return __half2float(__ushort_as_half(x.bits));
}

/// a * b, not fused with a following addition.
__device__ __forceinline__ float rounded_product(float a, float b) {
  return __fmul_rn(a, b);
}

/// Rounds to nearest even.
template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    T y;
    if constexpr (std::is_same_v<T, Bf16>)
      y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    else
      y.bits = __half_as_ushort(__float2half_rn(x));
    return y;
  }
}

/// Converts two values to 16-bit T in one word, `low` in its lower half.
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high) {
  union {
    __nv_bfloat162 b;
    __half2 h;
    std::uint32_t word;
  } u{};
  if constexpr (std::is_same_v<T, Bf16>)
    u.b = __floats2bfloat162_rn(low, high);
  else
    u.h = __floats2half2_rn(low, high);
  return u.word;
}

}  // namespace qtrain
