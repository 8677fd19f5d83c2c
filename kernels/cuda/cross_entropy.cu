#include "kernels/cross_entropy.h"

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/softcap.cuh"

namespace qtrain::ops {
namespace {

constexpr std::int64_t kMaxThreads = 1024;
constexpr float kLowest = -3.402823466e38f, kLog2OfE = 1.4426950408889634f;

/// Online log-sum-exp: log(sum e^x) = max + log(sum e^(x - max)). `max` ignores a NaN, but it makes `sum` NaN.
struct LogSumExp {
  float max, sum;
};

/// e^x, as precise as values stored as T need; exactly 1 for x = 0.
template <class T>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (std::is_same_v<T, float>)
    return expf(x);
  else
    return ptx::exp2(x * kLog2OfE);
}

template <class T>
struct Merge {
  __device__ LogSumExp operator()(LogSumExp a, LogSumExp b) const {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * exponential<T>(a.max - max) + b.sum * exponential<T>(b.max - max)};
  }
};

/// scale * e^(x - shift). For 16-bit results, one operation subtracts and scales the exponent.
template <class T>
struct Softmax {
  float scale, shift;

  __device__ Softmax(float scale_, float shift_)
      : scale(scale_), shift(std::is_same_v<T, float> ? shift_ : -shift_ * kLog2OfE) {}
  __device__ __forceinline__ float operator()(float x) const {
    if constexpr (std::is_same_v<T, float>)
      return scale * expf(x - shift);
    else
      return scale * ptx::exp2(fmaf(x, kLog2OfE, shift));
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
  int kept;  ///< packs of a row that stay in shared memory between the passes: all, or a multiple of the threads
  LogitCap cap;
};

/// The beginning of a block's shared memory; Args::kept packs follow.
using Shared = BlockPartials<LogSumExp>;
static_assert(sizeof(Shared) % 16 == 0);

template <class T, Logits L>
__device__ __forceinline__ float logit_of(T stored, const LogitCap& cap) {
  if constexpr (L == Logits::capped)
    return cap.value<T>(to_float(stored));
  else
    return to_float(stored);
}

/// A row in packs of N logits, of which a thread has every blockDim.x-th.
template <class T, int N, Logits L>
struct Row {
  T *global, *kept;
  int packs, keeps;
  LogitCap cap;

  /// Number of loads in flight.
  static constexpr int kAhead = 4;
  template <class F>
  __device__ __forceinline__ void for_packs(int first, const F& f) const {
    const int threads = static_cast<int>(blockDim.x);
    int i = first + static_cast<int>(threadIdx.x);
    for (; i + (kAhead - 1) * threads < packs; i += kAhead * threads) f.template operator()<kAhead>(i);
    for (; i < packs; i += threads) f.template operator()<1>(i);
  }
  template <int B>
  __device__ __forceinline__ void load(Pack<T, N> (&loaded)[B], int i) const {
#pragma unroll
    for (int b = 0; b < B; ++b)
      loaded[b] = load_pack<N>(global + std::int64_t{i + b * static_cast<int>(blockDim.x)} * N);
  }

  __device__ __forceinline__ LogSumExp sum() const {
    LogSumExp total{kLowest, 0.0f};
    for_packs(0, [&]<int B>(int i) {
      Pack<T, N> loaded[B];
      load(loaded, i);
      float v[B][N], max = total.max;
#pragma unroll
      for (int b = 0; b < B; ++b) {
        const int at = i + b * static_cast<int>(blockDim.x);
        if (at < keeps) store_pack<N>(kept + at * N, loaded[b]);
#pragma unroll
        for (int j = 0; j < N; ++j) max = fmaxf(max, v[b][j] = logit_of<T, L>(loaded[b].v[j], cap));
      }
      total = {max, total.sum * exponential<T>(total.max - max)};
#pragma unroll
      for (int b = 0; b < B; ++b)
#pragma unroll
        for (int j = 0; j < N; ++j) total.sum += exponential<T>(v[b][j] - max);
    });
    return total;
  }

  __device__ __forceinline__ void write_gradient(int i, const Pack<T, N>& logits, const Softmax<T>& softmax) const {
    float v[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float z = logit_of<T, L>(logits.v[j], cap);
      v[j] = softmax(z);
      if constexpr (L == Logits::capped) v[j] *= cap.slope(z);
    }
    Target<T>{global}.template put_pack<N>(std::int64_t{i} * N, v);
  }
  /// Starts with the packs that were read last, which may still be in a cache.
  __device__ __forceinline__ void write_gradients(const Softmax<T>& softmax) const {
    for_packs(keeps, [&]<int B>(int i) {
      Pack<T, N> loaded[B];
      load(loaded, i);
#pragma unroll
      for (int b = 0; b < B; ++b) write_gradient(i + b * static_cast<int>(blockDim.x), loaded[b], softmax);
    });
    for (int i = static_cast<int>(threadIdx.x); i < keeps; i += static_cast<int>(blockDim.x))
      write_gradient(i, load_pack<N>(kept + i * N), softmax);
  }
  /// Whether this logit is in a pack of the calling thread.
  __device__ __forceinline__ bool has(std::int32_t target) const {
    return static_cast<unsigned>(target / N) % blockDim.x == threadIdx.x;
  }
  __device__ __forceinline__ void write_zeros() const {
    constexpr float kZeros[N] = {};
    for (int i = static_cast<int>(threadIdx.x); i < packs; i += static_cast<int>(blockDim.x))
      Target<T>{global}.template put_pack<N>(std::int64_t{i} * N, kZeros);
  }
};

/// One block per row. As many logits as fit stay in shared memory between the passes for the sum and for the gradient.
template <class T, int N, Logits L>
__global__ void __launch_bounds__(kMaxThreads, 1) cross_entropy_rows(Args<T> a) {
  auto& partials = shared_memory<Shared>();
  const Row<T, N, L> row{.global = a.logits + blockIdx.x * a.width,
                         .kept = reinterpret_cast<T*>(&partials + 1),
                         .packs = static_cast<int>(a.width / N),
                         .keeps = a.kept,
                         .cap = a.cap};
  const std::int32_t target = a.targets[blockIdx.x];
  if (target == kNoClass) {
    if (threadIdx.x == 0) a.loss[blockIdx.x] = 0;
    if (a.scale) row.write_zeros();
    return;
  }
  const float logit = logit_of<T, L>(row.global[target], a.cap);
  const LogSumExp total = block_reduce(row.sum(), partials, Merge<T>{}, LogSumExp{kLowest, 0.0f});
  __syncthreads();  // all threads have read the target's logit
  const float lse = total.max + logf(total.sum);
  if (threadIdx.x == 0) a.loss[blockIdx.x] = lse - logit;
  if (!a.scale) return;
  const auto scale = static_cast<float>(*a.scale);
  row.write_gradients({scale, lse});
  if (!row.has(target)) return;
  // From the unrounded difference, so that a confident row keeps its small gradient in bf16.
  float gradient = scale * expm1f(logit - lse);
  if constexpr (L == Logits::capped) gradient *= a.cap.slope(logit);
  row.global[target] = from_float<T>(gradient);
}

/// The largest shared memory of a block on a device, in bytes.
struct SharedOfDevice {
  explicit SharedOfDevice(Device device) : bytes(cuda_info(device.index).shared_bytes) {}
  std::size_t bytes;
};

/// Enough threads for a row of this many packs, at most kMaxThreads.
unsigned threads_for(std::int64_t packs) {
  return static_cast<unsigned>(std::min(kMaxThreads, ceil_div(packs, kWarp) * kWarp));
}

/// How many packs of a row stay in shared memory, if `fit` packs fit.
std::int64_t kept_packs(std::int64_t packs, std::int64_t fit, unsigned threads) {
  return packs <= fit ? packs : fit / threads * threads;
}

template <class T, int N, Logits L>
void run(Ctx& ctx, Args<T> args, std::int64_t rows) {
  constexpr std::size_t kBytes = sizeof(T) * N;
  const std::int64_t packs = args.width / N;
  const unsigned threads = threads_for(packs);
  // Packs of 16 bytes are kept without bank conflicts; single elements are read again instead.
  if (args.scale && N > 1) {
    const std::size_t bytes = ctx.kept<SharedOfDevice>().bytes - sizeof(Shared);
    args.kept = static_cast<int>(kept_packs(packs, static_cast<std::int64_t>(bytes / kBytes), threads));
  }
  const Grid grid{static_cast<unsigned>(rows), threads, sizeof(Shared) + static_cast<std::size_t>(args.kept) * kBytes};
  launch(ctx, "cross_entropy", cross_entropy_rows<T, N, L>, grid, args);
}

}  // namespace

void run_cuda(Ctx& ctx, const CrossEntropy& a) {
  dispatch_storage(a.logits.dtype, [&]<class T>() {
    const Args<T> args{.logits = a.logits.as<T>(),
                       .loss = a.loss.as<float>(),
                       .targets = a.targets.as<std::int32_t>(),
                       .scale = a.gradient == Gradient::in_place ? a.scale.as<double>() : nullptr,
                       .width = a.logits.shape[1],
                       .kept = 0,
                       .cap = {a.logit_scale, a.softcap}};
    const std::int64_t rows = a.logits.shape[0];
    dispatch_packs<T>(packable<T>(args.width, args.logits), [&]<int N>() {
      if (a.logit_scale == 1 && a.softcap == 0)
        run<T, N, Logits::plain>(ctx, args, rows);
      else
        run<T, N, Logits::capped>(ctx, args, rows);
    });
  });
}

}  // namespace qtrain::ops
