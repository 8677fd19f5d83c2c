#include "kernels/expert_rows.h"

#include <cstring>

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::Vec;

template <class T>
void combine_as(Ctx& ctx, const CombineRows& a) {
  using A = Acc<T>;
  const std::int64_t C = a.x.shape[-1], tokens = a.y.t.shape.rows(), k = a.places.numel() / tokens;
  T* y = a.y.t.as<T>();
  const T* x = a.x.as<T>();
  const std::int32_t* places = a.places.as<std::int32_t>();
  const A* weights = a.weights ? a.weights.as<A>() : nullptr;
  for_rows(ctx, tokens, C * k, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      simd::each<A>(C, [&](std::int64_t c, auto lanes) {
        Vec<A> sum{};
        for (std::int64_t j = t * k; j < (t + 1) * k; ++j) {
          const Vec<A> v = simd::load<A>(x + places[j] * C + c, lanes);
          sum += weights ? weights[j] * v : v;
        }
        write<A>(y + t * C + c, sum, lanes, a.y.mode);
      });
  });
}

/// The gradient of x: each row is used by one token only.
template <class T>
void combine_rows_backward(Ctx& ctx, const CombineRowsGrad& a) {
  using A = Acc<T>;
  const std::int64_t C = a.dy.shape[-1], n = a.slots.numel(), k = n / a.dy.shape.rows();
  T* dx = a.dx.t.as<T>();
  const T* dy = a.dy.as<T>();
  const std::int32_t* slots = a.slots.as<std::int32_t>();
  const A* weights = a.weights ? a.weights.as<A>() : nullptr;
  for_rows(ctx, n, C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const Vec<A> weight = simd::broadcast(weights ? weights[slots[p]] : A{1});
      const T* from = dy + slots[p] / k * C;
      simd::each<A>(C, [&](std::int64_t c, auto lanes) {
        write<A>(dx + p * C + c, weight * simd::load<A>(from + c, lanes), lanes, a.dx.mode);
      });
    }
  });
}

template <class T>
void combine_weights_backward(Ctx& ctx, const CombineRowsGrad& a) {
  using A = Acc<T>;
  const std::int64_t C = a.dy.shape[-1], n = a.places.numel(), k = n / a.dy.shape.rows();
  A* dweights = a.dweights.t.as<A>();
  const T *dy = a.dy.as<T>(), *x = a.x.as<T>();
  const std::int32_t* places = a.places.as<std::int32_t>();
  for_rows(ctx, n, C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const A dot = simd::dot<A>(dy + i / k * C, x + places[i] * C, C);
      dweights[i] = a.dweights.adds() ? dweights[i] + dot : dot;
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const DispatchRows& a) {
  const std::int64_t row = a.x.shape[-1] * static_cast<std::int64_t>(size_of(a.x.dtype));
  const std::int32_t* slots = a.slots.as<std::int32_t>();
  for_rows(ctx, a.slots.numel(), a.x.shape[-1], [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p)
      std::memcpy(a.y.data + p * row, a.x.data + slots[p] / a.k * row, static_cast<std::size_t>(row));
  });
}
void run_cpu(Ctx& ctx, const CombineRows& a) {
  dispatch_float(a.x.dtype, [&]<class T>() { combine_as<T>(ctx, a); });
}
void run_cpu(Ctx& ctx, const CombineRowsGrad& a) {
  dispatch_float(a.dy.dtype, [&]<class T>() {
    if (a.dx.wanted()) combine_rows_backward<T>(ctx, a);
    if (a.dweights.wanted()) combine_weights_backward<T>(ctx, a);
  });
}

}  // namespace qtrain::ops
