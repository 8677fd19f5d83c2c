#pragma once
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

/// Elementwise kernels. A body is a struct of pointers with
///   template <int N> __device__ void at(std::int64_t i) const
/// which processes elements i to i + N - 1.
namespace qtrain {

inline constexpr unsigned kElementThreads = 256;

template <int N, class Body>
__global__ void __launch_bounds__(kElementThreads) for_elements(std::int64_t n, Body body) {
  const std::int64_t i = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (i + N <= n)
    body.template at<N>(i);
  else
    for (std::int64_t j = i; j < n; ++j) body.template at<1>(j);
}

template <int N, class Body>
void launch_elements(Ctx& ctx, const char* name, std::int64_t n, const Body& body) {
  const auto blocks = static_cast<unsigned>(ceil_div(n, std::int64_t{kElementThreads} * N));
  launch(ctx, name, for_elements<N, Body>, {blocks, kElementThreads}, n, body);
}

/// e^x, in full precision if results are stored as f32.
template <class T>
__device__ __forceinline__ float exp_for(float x) {
  if constexpr (std::is_same_v<T, float>)
    return expf(x);
  else
    return __expf(x);
}

/// tanh x, in full precision if results are stored as f32; otherwise with an absolute error below 4e-7, which is 1e-5
/// of a score or logit capped at 30, and a fortieth of the effect of 16-bit rounding on its exponential. The error of
/// tanh.approx would be 2^-11.
template <class T>
__device__ __forceinline__ float tanh_for(float x) {
  if constexpr (std::is_same_v<T, float>)
    return tanhf(x);
  else
    return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * x));  // 1 for large x: 2 / inf is 0
}

/// Whether the pointers are aligned for packs of 16 bytes; a remainder at the end does not matter.
template <class T, class... P>
Packs aligned(const P*... pointers) {
  return packable<T>(0, pointers...);
}

}  // namespace qtrain
