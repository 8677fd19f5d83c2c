#include "kernels/reduce.h"

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::Vec;

template <class T>
void column_sum_as(Ctx& ctx, const ColumnSum& a) {
  using A = Acc<T>;
  const std::int64_t N = a.x.shape[-1], step = a.row_step();
  const T* x = a.x.as<T>();
  RowSums<A> sums(ctx, a.x.shape.rows(), N);
  sums.run([&](std::int64_t begin, std::int64_t end, A* part) {
    for (std::int64_t r = begin; r < end; ++r) simd::axpy<A>(part, A{1}, x + r * step, N);
  });
  dispatch_float(a.y.t.dtype, [&]<class Y>() { sums.finish(a.y.t.as<Y>(), a.y.mode); });
}

/// out (+)= sum over i of term(Vec<double>), in fixed chunks whose f64 sums are added in order.
template <class T, class Term>
void sum_terms(Ctx& ctx, const Sink& out, ConstTensor x, const Term& term) {
  const T* p = x.as<T>();
  const std::int64_t n = x.numel(), max = Ctx::kWorkspaceBytes / sizeof(double);
  const std::int64_t block_size = std::max(kBlockSize, ceil_div(n, max));
  auto* parts = reinterpret_cast<double*>(ctx.workspace(0).data());
  for_ranges(ctx, n, block_size, [&](std::int64_t begin, std::int64_t end) {
    Vec<double> even{}, odd{};
    std::int64_t i = begin;
    for (; i + 8 <= end; i += 8) {
      even += term(simd::load<double>(p + i));
      odd += term(simd::load<double>(p + i + 4));
    }
    simd::each<double>(end - i,
                       [&](std::int64_t j, auto lanes) { even += term(simd::load<double>(p + i + j, lanes)); });
    parts[begin / block_size] = simd::sum(even + odd);
  });
  double total = 0;
  for (std::int64_t i = 0; i < ceil_div(n, block_size); ++i) total += parts[i];
  double* y = out.t.as<double>();
  *y = out.adds() ? *y + total : total;
}

template <class T>
void square_segments(Ctx& ctx, const SegmentSquares& a) {
  const T* x = a.x.as<T>();
  const std::int64_t n = a.x.numel();
  ctx.pool().run(a.out.numel(), [&](std::int64_t i, int) {
    double sum = 0;
    for (std::int64_t e = i * a.segment; e < std::min(n, (i + 1) * a.segment); ++e) {
      const auto value = static_cast<double>(x[e]);
      sum += value * value;
    }
    a.out.as<double>()[i] = sum;
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const ColumnSum& a) {
  dispatch_float(a.x.dtype, [&]<class T>() { column_sum_as<T>(ctx, a); });
}
void run_cpu(Ctx& ctx, const SumSquares& a) {
  if (!a.out.wanted()) return;
  dispatch_float(a.x.dtype, [&]<class T>() { sum_terms<T>(ctx, a.out, a.x, [](Vec<double> v) { return v * v; }); });
}
void run_cpu(Ctx& ctx, const Sum& a) {
  if (!a.out.wanted()) return;
  dispatch_float(a.x.dtype, [&]<class T>() { sum_terms<T>(ctx, a.out, a.x, [](Vec<double> v) { return v; }); });
}

void run_cpu(Ctx& ctx, const SegmentSquares& a) {
  dispatch_float(a.x.dtype, [&]<class T>() { square_segments<T>(ctx, a); });
}

}  // namespace qtrain::ops
