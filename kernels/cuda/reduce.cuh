#pragma once
#include "kernels/cuda/device.cuh"

/// Sums and maxima over warps and blocks, in an order that depends only on the number of threads.
namespace qtrain {

struct Plus {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// The maximum; NaN if any value is NaN.
struct Larger {
  __device__ __forceinline__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

/// The value of the lane whose index differs in `bit`, for any type that consists of whole words.
template <class T>
__device__ __forceinline__ T from_lane_across(T v, int bit) {
  if constexpr (std::is_arithmetic_v<T>) {
    return __shfl_xor_sync(kAllLanes, v, bit);
  } else {
    static_assert(sizeof(T) % 4 == 0);
    union {
      T value;
      std::uint32_t words[sizeof(T) / 4];
    } u{v};
#pragma unroll
    for (std::size_t i = 0; i < sizeof(T) / 4; ++i) u.words[i] = __shfl_xor_sync(kAllLanes, u.words[i], bit);
    return u.value;
  }
}

/// Every lane gets the result over all 32.
template <class Op, class T>
__device__ __forceinline__ T warp_reduce(T v, Op op) {
#pragma unroll
  for (int bit = kWarp / 2; bit > 0; bit /= 2) v = op(v, from_lane_across(v, bit));
  return v;
}
template <class T>
__device__ __forceinline__ T warp_sum(T v) {
  return warp_reduce(v, Plus{});
}

/// Shared memory for the partial results of up to 32 warps.
template <class T>
struct BlockPartials {
  T v[kWarp];
};

/// Every thread gets the result over the block, whose size must be a multiple of 32. `identity` is the neutral element
/// of `op`. All threads must call it; it ends with a barrier, after which `partials` may be reused.
template <class Op, class T>
__device__ __forceinline__ T block_reduce(T v, BlockPartials<T>& partials, Op op, T identity) {
  const unsigned warps = blockDim.x / kWarp, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  v = warp_reduce(v, op);
  if (warps == 1) return v;
  if (lane == 0) partials.v[warp] = v;
  __syncthreads();
  v = warp_reduce(lane < warps ? partials.v[lane] : identity, op);
  __syncthreads();
  return v;
}
template <class T>
__device__ __forceinline__ T block_sum(T v, BlockPartials<T>& partials) {
  return block_reduce(v, partials, Plus{}, T{0});
}

}  // namespace qtrain
