#include "kernels/cross_entropy.h"

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/softcap.cuh"

namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 512;
constexpr float kLowest = -3.402823466e38f;

/// Online log-sum-exp: log(sum e^x) = max + log(sum e^(x - max)).
struct LogSumExp {
  float max, sum;
};
template <class T>
struct Merge {
  __device__ LogSumExp operator()(LogSumExp a, LogSumExp b) const {
    const float max = Larger{}(a.max, b.max);
    return {max, a.sum * exp_for<T>(a.max - max) + b.sum * exp_for<T>(b.max - max)};
  }
};

/// Whether logits are scaled or capped.
enum class Logits : std::uint8_t { plain, capped };

template <class T>
struct Args {
  T* logits;
  float* loss;
  const std::int32_t* targets;
  const double* scale;  ///< null: no gradient
  std::int64_t width;
  LogitCap cap;
};

template <class T, Logits L, int N>
__device__ __forceinline__ void load_logits(float (&v)[N], const T* p, const LogitCap& cap) {
  load_floats(v, p);
  if constexpr (L == Logits::capped) {
#pragma unroll
    for (float& z : v) z = cap.value<T>(z);
  }
}

template <class T, int N, Logits L>
__device__ __forceinline__ LogSumExp with_pack(LogSumExp total, const T* p, const LogitCap& cap) {
  float v[N];
  load_logits<T, L>(v, p, cap);
  float max = total.max;
#pragma unroll
  for (int j = 0; j < N; ++j) max = Larger{}(max, v[j]);
  total = {max, total.sum * exp_for<T>(total.max - max)};
#pragma unroll
  for (int j = 0; j < N; ++j) total.sum += exp_for<T>(v[j] - max);
  return total;
}

/// One block per row.
template <class T, int N, Logits L>
__global__ void __launch_bounds__(kThreads) cross_entropy_rows(Args<T> a) {
  auto& partials = shared_memory<BlockPartials<LogSumExp>>();
  T* row = a.logits + blockIdx.x * a.width;
  const std::int32_t target = a.targets[blockIdx.x];
  const std::int64_t first = std::int64_t{threadIdx.x} * N, stride = std::int64_t{blockDim.x} * N;
  if (target == kNoClass) {
    if (threadIdx.x == 0) a.loss[blockIdx.x] = 0;
    constexpr float kZeros[N] = {};
    for (std::int64_t i = first; a.scale && i < a.width; i += stride) Target<T>{row}.template put_pack<N>(i, kZeros);
    return;
  }
  float of_target[1];
  load_logits<T, L>(of_target, row + target, a.cap);
  const float logit = of_target[0];
  constexpr LogSumExp kNothing{kLowest, 0.0f};
  LogSumExp total = kNothing;
  for (std::int64_t i = first; i < a.width; i += stride) total = with_pack<T, N, L>(total, row + i, a.cap);
  total = block_reduce(total, partials, Merge<T>{}, kNothing);
  __syncthreads();  // all threads have read the target's logit
  const float lse = total.max + logf(total.sum);
  if (threadIdx.x == 0) a.loss[blockIdx.x] = lse - logit;
  if (!a.scale) return;
  const float scale = static_cast<float>(*a.scale);
  for (std::int64_t i = first; i < a.width; i += stride) {
    float v[N];
    load_logits<T, L>(v, row + i, a.cap);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float z = v[j];
      v[j] = scale * exp_for<T>(v[j] - lse);
      // From the unrounded difference, so that a confident row keeps its small gradient in bf16.
      if (i + j == target) v[j] = scale * expm1f(logit - lse);
      if constexpr (L == Logits::capped) v[j] *= a.cap.slope(z);
    }
    Target<T>{row}.template put_pack<N>(i, v);
  }
}

}  // namespace

void run_cuda(Ctx& ctx, const CrossEntropy& a) {
  dispatch_storage(a.logits.dtype, [&]<class T>() {
    const Args<T> args{.logits = a.logits.as<T>(),
                       .loss = a.loss.as<float>(),
                       .targets = a.targets.as<std::int32_t>(),
                       .scale = a.gradient == Gradient::in_place ? a.scale.as<double>() : nullptr,
                       .width = a.logits.shape[1],
                       .cap = {a.logit_scale, a.softcap}};
    const Grid grid{static_cast<unsigned>(a.logits.shape[0]), kThreads, sizeof(BlockPartials<LogSumExp>)};
    dispatch_packs<T>(packable<T>(args.width, args.logits), [&]<int N>() {
      if (a.logit_scale == 1 && a.softcap == 0)
        launch(ctx, "cross_entropy", cross_entropy_rows<T, N, Logits::plain>, grid, args);
      else
        launch(ctx, "cross_entropy", cross_entropy_rows<T, N, Logits::capped>, grid, args);
    });
  });
}

}  // namespace qtrain::ops
