#include "kernels/cross_entropy.h"

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/softcap.cuh"

namespace qtrain::ops {
namespace {

constexpr std::int64_t kMaxThreads = 1024;
constexpr float kLowest = -3.402823466e38f, kLog2OfE = 1.4426950408889634f;

/// Whether logits are used as they are, or scaled, capped, or with label smoothing.
enum class Logits : std::uint8_t { plain, changed };

/// Online log-sum-exp: log(sum e^x) = max + log(sum e^(x - max)). `max` ignores a NaN, but it makes `sum` NaN.
template <Logits L>
struct RowTotals {
  float max, sum;
};
template <>
struct RowTotals<Logits::changed> {
  float max, sum, plain_sum;  ///< plain_sum: of x, for label smoothing
};

/// e^x, as precise as values stored as T need; exactly 1 for x = 0.
template <class T>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (std::is_same_v<T, float>)
    return expf(x);
  else
    return ptx::exp2(x * kLog2OfE);
}

template <class T, Logits L>
struct Merge {
  __device__ RowTotals<L> operator()(RowTotals<L> a, RowTotals<L> b) const {
    RowTotals<L> both{};
    both.max = fmaxf(a.max, b.max);
    both.sum = a.sum * exponential<T>(a.max - both.max) + b.sum * exponential<T>(b.max - both.max);
    if constexpr (L == Logits::changed) both.plain_sum = a.plain_sum + b.plain_sum;
    return both;
  }
};

/// scale * e^(x - shift) - less. For 16-bit results, one operation subtracts and scales the exponent.
template <class T, Logits L>
struct Softmax {
  float scale, shift, less;

  __device__ Softmax(float scale_, float shift_, float less_)
      : scale(scale_), shift(std::is_same_v<T, float> ? shift_ : -shift_ * kLog2OfE), less(less_) {}
  __device__ __forceinline__ float operator()(float x) const {
    float power;
    if constexpr (std::is_same_v<T, float>)
      power = expf(x - shift);
    else
      power = ptx::exp2(fmaf(x, kLog2OfE, shift));
    return L == Logits::changed ? scale * power - less : scale * power;
  }
};
template <class T>
struct Args {
  T* logits;
  float* loss;
  const std::int32_t* targets;
  const double* scale;  ///< null: no gradient
  std::int64_t width;
  int kept;  ///< packs of a row that stay in shared memory between the passes: all, or a multiple of the threads
  LogitCap cap;
  TargetWeight weight;
  float smoothing;
};

/// The beginning of a block's shared memory; Args::kept packs follow.
template <Logits L>
struct alignas(16) Shared {
  BlockPartials<RowTotals<L>> totals;
};

template <class T, Logits L>
__device__ __forceinline__ float logit_of(T stored, const LogitCap& cap) {
  if constexpr (L == Logits::changed)
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

  __device__ __forceinline__ RowTotals<L> totals() const {
    RowTotals<L> total{kLowest};
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
      total.sum *= exponential<T>(total.max - max);
      total.max = max;
#pragma unroll
      for (int b = 0; b < B; ++b)
#pragma unroll
        for (int j = 0; j < N; ++j) {
          total.sum += exponential<T>(v[b][j] - max);
          if constexpr (L == Logits::changed) total.plain_sum += v[b][j];
        }
    });
    return total;
  }

  __device__ __forceinline__ void write_gradient(int i, const Pack<T, N>& logits, const Softmax<T, L>& softmax) const {
    float v[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float z = logit_of<T, L>(logits.v[j], cap);
      v[j] = softmax(z);
      if constexpr (L == Logits::changed) v[j] *= cap.slope(z);
    }
    Target<T>{global}.template put_pack<N>(std::int64_t{i} * N, v);
  }
  /// Starts with the packs that were read last, which may still be in a cache.
  __device__ __forceinline__ void write_gradients(const Softmax<T, L>& softmax) const {
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
  auto& shared = shared_memory<Shared<L>>();
  const Row<T, N, L> row{.global = a.logits + blockIdx.x * a.width,
                         .kept = reinterpret_cast<T*>(&shared + 1),
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
  const RowTotals<L> total = block_reduce(row.totals(), shared.totals, Merge<T, L>{}, RowTotals<L>{kLowest});
  __syncthreads();  // all threads have read the target's logit
  const float lse = total.max + logf(total.sum);
  const float weight = a.weight == TargetWeight::probability ? expf(logit - lse) : 1.0f;
  // p log p is 0 for p = 0, also where its logit is -inf.
  float loss = weight == 0 ? 0 : weight * (lse - logit), share = 0;
  if constexpr (L == Logits::changed) {
    share = a.smoothing / static_cast<float>(a.width);
    if (a.smoothing > 0) loss += a.smoothing * (logit - total.plain_sum / static_cast<float>(a.width));
  }
  if (threadIdx.x == 0) a.loss[blockIdx.x] = loss;
  if (!a.scale) return;
  const float scale = weight * static_cast<float>(*a.scale);
  row.write_gradients({scale, lse, scale * share});
  if (!row.has(target)) return;
  // From the unrounded difference, so that a confident row keeps its small gradient in bf16.
  float gradient = expm1f(logit - lse);
  if constexpr (L == Logits::changed) gradient += a.smoothing - share;
  gradient *= scale;
  if constexpr (L == Logits::changed) gradient *= a.cap.slope(logit);
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
    const std::size_t bytes = ctx.kept<SharedOfDevice>().bytes - sizeof(Shared<L>);
    args.kept = static_cast<int>(kept_packs(packs, static_cast<std::int64_t>(bytes / kBytes), threads));
  }
  const Grid grid{static_cast<unsigned>(rows), threads,
                  sizeof(Shared<L>) + static_cast<std::size_t>(args.kept) * kBytes};
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
                       .cap = {a.logit_scale, a.softcap},
                       .weight = a.form.weight,
                       .smoothing = static_cast<float>(a.form.smoothing)};
    const std::int64_t rows = a.logits.shape[0];
    dispatch_packs<T>(packable<T>(args.width, args.logits), [&]<int N>() {
      if (a.logit_scale == 1 && a.softcap == 0 && a.form.smoothing == 0)
        run<T, N, Logits::plain>(ctx, args, rows);
      else
        run<T, N, Logits::changed>(ctx, args, rows);
    });
  });
}

}  // namespace qtrain::ops
