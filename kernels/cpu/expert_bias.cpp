#include "kernels/expert_bias.h"

#include <algorithm>

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::Vec;

template <class T>
void add_bias(Ctx& ctx, const ExpertBias& a) {
  using A = Acc<T>;
  const std::int64_t N = a.y.shape[1], E = a.bias.shape[0];
  T* y = a.y.as<T>();
  const A* bias = a.bias.as<A>();
  const std::int32_t* offsets = a.offsets.as<std::int32_t>();
  for_rows(ctx, std::min<std::int64_t>(a.y.shape[0], offsets[E]), N, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t e = std::upper_bound(offsets, offsets + E + 1, begin) - offsets - 1;
    for (std::int64_t r = begin; r < end; ++r) {
      while (offsets[e + 1] <= r) ++e;
      simd::each<A>(N, [&](std::int64_t i, auto lanes) {
        T* to = y + r * N + i;
        simd::store<A>(to, simd::load<A>(to, lanes) + simd::load<A>(bias + e * N + i, lanes), lanes);
      });
    }
  });
}

template <class T>
void bias_grad(Ctx& ctx, const ExpertBiasGrad& a) {
  using A = Acc<T>;
  constexpr std::int64_t kColumns = 256;
  const std::int64_t N = a.dy.shape[1], E = a.dbias.t.shape[0], chunks = ceil_div(N, kColumns);
  A* dbias = a.dbias.t.as<A>();
  const T* dy = a.dy.as<T>();
  const std::int32_t* offsets = a.offsets.as<std::int32_t>();
  ctx.pool().run(E * chunks, [&](std::int64_t task, int) {
    const std::int64_t e = task / chunks, begin = task % chunks * kColumns;
    simd::each<A>(std::min(kColumns, N - begin), [&](std::int64_t i, auto lanes) {
      Vec<A> sum{};
      for (std::int64_t r = offsets[e]; r < offsets[e + 1]; ++r) sum += simd::load<A>(dy + r * N + begin + i, lanes);
      write<A>(dbias + e * N + begin + i, sum, lanes, a.dbias.mode);
    });
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const ExpertBias& a) {
  dispatch_float(a.y.dtype, [&]<class T>() { add_bias<T>(ctx, a); });
}
void run_cpu(Ctx& ctx, const ExpertBiasGrad& a) {
  dispatch_float(a.dy.dtype, [&]<class T>() { bias_grad<T>(ctx, a); });
}

}  // namespace qtrain::ops
