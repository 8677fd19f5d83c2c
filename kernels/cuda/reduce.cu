#include "kernels/reduce.h"

#include "kernels/cuda/column_parts.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 256;

/// Block (b, p) sums rows p, p + parts, ... in its columns of x, whose rows are `step` elements apart.
template <class T>
__global__ void __launch_bounds__(kThreads)
    column_sum_parts(ColumnParts out, const T* x, std::int64_t rows, std::int64_t step) {
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= out.width) return;
  float sum = 0;
  for (std::int64_t r = blockIdx.y; r < rows; r += gridDim.y) sum += to_float(x[r * step + column]);
  out.data[blockIdx.y * std::int64_t{out.width} + column] = sum;
}

template <class T>
__device__ __forceinline__ double term(T x, bool square) {
  double v = 0;
  if constexpr (std::is_same_v<T, double>)
    v = x;
  else
    v = to_float(x);
  return square ? v * v : v;
}

enum class Term : std::uint8_t { value, square };

/// Adds the terms of the kPackOf<T> elements from x[i] on, or of those before `end`, in order. Whether they are loaded
/// together does not change the bits.
template <Packs P, Term K, class T>
__device__ __forceinline__ double with_terms(double sum, const T* x, std::int64_t i, std::int64_t end) {
  constexpr int N = kPackOf<T>;
  if (P == Packs::no || i + N > end) {
    const std::int64_t last = min(end, i + N);
    for (; i < last; ++i) sum += term(x[i], K == Term::square);
    return sum;
  }
  const Pack<T, N> taken = load_pack<N>(x + i);
#pragma unroll
  for (int j = 0; j < N; ++j) sum += term(taken.v[j], K == Term::square);
  return sum;
}

/// Block b sums its elements in a grid-stride loop, all in f64.
template <class T, Term K, Packs P>
__global__ void __launch_bounds__(kThreads) sum_parts(double* parts, const T* x, std::int64_t n) {
  auto& partials = shared_memory<BlockPartials<double>>();
  double sum = 0;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x * kPackOf<T>;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPackOf<T>; i < n; i += stride)
    sum = with_terms<P, K>(sum, x, i, n);
  sum = block_sum(sum, partials);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) add_sum_parts(double* out, bool adds, const double* parts, int count) {
  auto& partials = shared_memory<BlockPartials<double>>();
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) sum += parts[i];
  sum = block_sum(sum, partials);
  if (threadIdx.x == 0) *out = adds ? *out + sum : sum;
}

/// Block b sums segment b, all in f64.
template <class T, Packs P>
__global__ void __launch_bounds__(kThreads)
    segment_square_sums(double* out, const T* x, std::int64_t n, std::int64_t segment) {
  auto& partials = shared_memory<BlockPartials<double>>();
  const std::int64_t begin = std::int64_t{blockIdx.x} * segment, end = min(n, begin + segment);
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x * kPackOf<T>; i < end; i += blockDim.x * kPackOf<T>)
    sum = with_terms<P, Term::square>(sum, x, i, end);
  sum = block_sum(sum, partials);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

template <class T, Term K>
void sum_terms(Ctx& ctx, const char* name, const Sink& out, ConstTensor x) {
  constexpr std::int64_t kMax = 1024, kOfThread = 16;
  const std::int64_t n = x.numel(), blocks = std::clamp<std::int64_t>(ceil_div(n, kThreads * kOfThread), 1, kMax);
  auto* parts = reinterpret_cast<double*>(ctx.scratch(static_cast<std::size_t>(blocks) * sizeof(double)));
  constexpr std::size_t kShared = sizeof(BlockPartials<double>);
  const auto kernel =
      packable<T>(0, x.as<T>()) == Packs::yes ? sum_parts<T, K, Packs::yes> : sum_parts<T, K, Packs::no>;
  launch(ctx, name, kernel, {static_cast<unsigned>(blocks), kThreads, kShared}, parts, x.as<T>(), n);
  launch(ctx, name, add_sum_parts, {1, kThreads, kShared}, out.t.as<double>(), out.adds(), parts, blocks);
}

template <Term K>
void sum_any(Ctx& ctx, const char* name, const Sink& out, ConstTensor x) {
  if (!out.wanted()) return;
  if (x.dtype == DType::f64) return sum_terms<double, K>(ctx, name, out, x);
  dispatch_storage(x.dtype, [&]<class T>() { sum_terms<T, K>(ctx, name, out, x); });
}

}  // namespace

void run_cuda(Ctx& ctx, const ColumnSum& a) {
  const std::int64_t rows = a.x.shape.rows();
  const ColumnParts parts = column_parts(ctx, rows, part_of_columns(a.x.shape[-1], kThreads));
  dispatch_storage(a.x.dtype, [&]<class T>() {
    const dim3 blocks(ceil_div(static_cast<unsigned>(parts.width), kThreads), static_cast<unsigned>(parts.parts));
    launch(ctx, "column_sum", column_sum_parts<T>, {blocks, kThreads}, parts, a.x.as<T>(), rows, a.row_step());
  });
  finish_column_parts(ctx, a.y, parts);
}
void run_cuda(Ctx& ctx, const SumSquares& a) {
  sum_any<Term::square>(ctx, "sum_squares", a.out, a.x);
}
void run_cuda(Ctx& ctx, const Sum& a) {
  sum_any<Term::value>(ctx, "sum", a.out, a.x);
}

void run_cuda(Ctx& ctx, const SegmentSquares& a) {
  const auto run = [&]<class T>() {
    const bool together = packable<T>(a.segment, a.x.as<T>()) == Packs::yes;
    launch(ctx, "segment_squares", together ? segment_square_sums<T, Packs::yes> : segment_square_sums<T, Packs::no>,
           {static_cast<unsigned>(a.out.numel()), kThreads, sizeof(BlockPartials<double>)}, a.out.as<double>(),
           a.x.as<T>(), a.x.numel(), a.segment);
  };
  if (a.x.dtype == DType::f64) return run.template operator()<double>();
  dispatch_storage(a.x.dtype, run);
}

}  // namespace qtrain::ops
