#include "kernels/magnitude.h"

#include <cmath>

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::each;
using simd::Vec;

// Sum of squares of a row of W + scale * B A, in chunks that stay in the level-1 cache.
template <class W, class A>
double squares_of_sum(const RowNorms& n, std::int64_t row) {
  constexpr std::int64_t kChunk = 512;
  const std::int64_t in = n.w.shape[1], ranks = n.a.shape[0];
  const W* w = n.w.as<W>() + row * in;
  const A *a = n.a.as<A>(), *b = n.b.as<A>() + row * ranks;
  A v[kChunk];
  double squares = 0;
  for (std::int64_t first = 0; first < in; first += kChunk) {
    const std::int64_t size = std::min(kChunk, in - first);
    each<A>(size,
            [&](std::int64_t i, auto lanes) { simd::store<A>(v + i, simd::load<A>(w + first + i, lanes), lanes); });
    for (std::int64_t r = 0; r < ranks; ++r) simd::axpy<A>(v, static_cast<A>(n.scale) * b[r], a + r * in + first, size);
    squares += simd::dot<A>(v, v, size);
  }
  return squares;
}

template <class W, class A>
void row_norms_as(Ctx& ctx, const RowNorms& n) {
  A* norm = n.norm.as<A>();
  const std::int64_t work = n.w.shape[1] * (n.a.shape[0] + 1);
  for_rows(ctx, n.w.shape[0], work, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      norm[row] = static_cast<A>(std::sqrt(squares_of_sum<W, A>(n, row)));
  });
}

template <class A>
A relative_to(A value, A norm) {
  return norm > 0 ? value / norm : A{};
}

template <class Y, class X>
void scale_as(Ctx& ctx, const ScaleToMagnitude& s) {
  using A = Acc<X>;
  const std::int64_t N = s.x.shape[-1];
  const A *m = s.magnitude.as<A>(), *norm = s.norm.as<A>(), *bias = s.bias ? s.bias.as<A>() : nullptr;
  const X* x = s.x.as<X>();
  Y* y = s.y.t.as<Y>();
  // Factors are the same for all rows, so they are divided only once.
  A* factors = reinterpret_cast<A*>(ctx.workspace(0).data());
  check(static_cast<std::size_t>(N) * sizeof(A) <= Ctx::kWorkspaceBytes, "a row is longer than the workspace");
  for (std::int64_t j = 0; j < N; ++j) factors[j] = relative_to(m[j], norm[j]) + static_cast<A>(s.shift);
  for_rows(ctx, s.x.shape.rows(), N, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      each<A>(N, [&](std::int64_t j, auto lanes) {
        Vec<A> v = simd::load<A>(factors + j, lanes) * simd::load<A>(x + row * N + j, lanes);
        if (bias) v += simd::load<A>(bias + j, lanes);
        write<A>(y + row * N + j, v, lanes, s.y.mode);
      });
  });
}

template <class T, class V>
void magnitude_grad_as(Ctx& ctx, const MagnitudeGrad& g) {
  using A = Acc<V>;
  const std::int64_t N = g.dy.shape[-1];
  const T* dy = g.dy.as<T>();
  const V* v = g.v.as<V>();
  const A* norm = g.norm.as<A>();
  RowSums<A> sums(ctx, g.dy.shape.rows(), N);
  sums.run([&](std::int64_t begin, std::int64_t end, A* part) {
    for (std::int64_t r = begin * N; r < end * N; r += N)
      each<A>(N, [&](std::int64_t j, auto lanes) {
        const Vec<A> product = simd::load<A>(dy + r + j, lanes) * simd::load<A>(v + r + j, lanes);
        simd::store<A>(part + j, simd::load<A>(part + j, lanes) + product, lanes);
      });
    for (std::int64_t j = 0; j < N; ++j) part[j] = relative_to(part[j], norm[j]);
  });
  sums.finish(g.dmagnitude.t.as<A>(), g.dmagnitude.mode);
}

// All f64, or any mix of the other types.
template <class F>
void dispatch_pair(DType a, DType b, const F& f) {
  if (a == DType::f64) return f.template operator()<double, double>();
  const auto second = [&]<class Ta>() {
    b == DType::bf16 ? f.template operator()<Ta, Bf16>() : f.template operator()<Ta, float>();
  };
  a == DType::bf16 ? second.template operator()<Bf16>() : second.template operator()<float>();
}

}  // namespace

void run_cpu(Ctx& ctx, const RowNorms& n) {
  if (n.norm.dtype == DType::f64) return dispatch_float(n.w.dtype, [&]<class W>() { row_norms_as<W, double>(ctx, n); });
  dispatch_float(n.w.dtype, [&]<class W>() { row_norms_as<W, float>(ctx, n); });
}

void run_cpu(Ctx& ctx, const ScaleToMagnitude& s) {
  dispatch_pair(s.y.t.dtype, s.x.dtype, [&]<class Y, class X>() { scale_as<Y, X>(ctx, s); });
}

void run_cpu(Ctx& ctx, const MagnitudeGrad& g) {
  dispatch_pair(g.dy.dtype, g.v.dtype, [&]<class T, class V>() { magnitude_grad_as<T, V>(ctx, g); });
}

}  // namespace qtrain::ops
