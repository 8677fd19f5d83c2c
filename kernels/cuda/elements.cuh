#pragma once
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

/// Kernels that treat every element alike. A body is a struct of pointers with
///   template <int N> __device__ void at(std::int64_t i) const
/// which does elements i to i + N - 1.
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

/// e^x: in full precision where results are kept in f32.
template <class T>
__device__ __forceinline__ float exp_for(float x) {
  if constexpr (std::is_same_v<T, float>)
    return expf(x);
  else
    return __expf(x);
}

/// tanh x: in full precision where results are kept in f32, else with an absolute error below 4e-7, which is 1e-5 of a
/// score or logit that is capped at 30 and a fortieth of what rounding to 16 bits takes from its exponential.
/// tanh.approx would be off by 2^-11.
template <class T>
__device__ __forceinline__ float tanh_for(float x) {
  if constexpr (std::is_same_v<T, float>)
    return tanhf(x);
  else
    return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * x));  // 1 for large x: 2 / inf is 0
}

/// Whether pointers can be read in packs of 16 bytes from their beginning; what is left over at the end does not count.
template <class T, class... P>
Packs aligned(const P*... pointers) {
  return packable<T>(0, pointers...);
}

}  // namespace qtrain
