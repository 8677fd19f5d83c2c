#pragma once
#include <algorithm>

#include "kernels/cuda/device.cuh"

/// One block per row, with the row in registers: thread t holds packs t, t + threads, ... of N elements.
namespace qtrain {

/// Packs per thread; single elements take more registers for their addresses.
template <int N>
inline constexpr int kSlots = N == 1 ? 8 : 16 / N;

inline constexpr std::int64_t kMaxRowThreads = 1024, kFewElements = 8;

/// Number of threads for rows of `width` elements: enough to hold them, with kFewElements each if that suffices.
template <int N>
unsigned row_threads(std::int64_t width) {
  check(width <= kMaxRowThreads * N * kSlots<N>,
        "a row is too long for one block (16384 elements, 8192 where they are not aligned)");
  const std::int64_t threads = std::min(kMaxRowThreads, ceil_div(std::max<std::int64_t>(width, 1), kFewElements));
  return static_cast<unsigned>(ceil_div(threads, kWarp) * kWarp);
}

/// Calls f.operator()<S>() with the packs that a thread needs to hold for rows of `width` elements.
template <int N, class F>
void dispatch_slots(std::int64_t width, const F& f) {
  constexpr int kFew = static_cast<int>(kFewElements) / N;
  if (width <= kMaxRowThreads * kFewElements)
    f.template operator()<kFew>();
  else if constexpr (kFew < kSlots<N>)
    f.template operator()<kSlots<N>>();
}

/// Calls f(slot, column) for the packs of the calling thread; `slot` is a constant after unrolling.
template <int N, int S = kSlots<N>, class F>
__device__ __forceinline__ void for_packs(int width, const F& f) {
#pragma unroll
  for (int slot = 0; slot < S; ++slot) {
    const int column = (static_cast<int>(threadIdx.x) + slot * static_cast<int>(blockDim.x)) * N;
    if (column < width) f(slot, column);
  }
}

/// Loads N elements as f32.
template <int N, class T>
__device__ __forceinline__ void load_floats(float (&v)[N], const T* p) {
  const Pack<T, N> pack = load_pack<N>(p);
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = to_float(pack.v[j]);
}

}  // namespace qtrain
