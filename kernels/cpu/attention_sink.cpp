#include <cmath>

#include "kernels/attention.h"
#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

template <class T>
void sink_grad(Ctx& ctx, const AttentionSinkGrad& a) {
  using A = simd::Acc<T>;
  const std::int64_t tokens = a.dy.shape[0], H = a.dy.shape[1], D = a.dy.shape[2];
  const T *dy = a.dy.as<T>(), *y = a.y.as<T>();
  const A *lse = a.lse.as<A>(), *sinks = a.sinks.as<A>();
  RowSums<A> sums(ctx, tokens, H);
  sums.run([&](std::int64_t begin, std::int64_t end, A* part) {
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t row = (t * H + h) * D;
        part[h] -= std::exp(sinks[h] - lse[h * tokens + t]) * simd::dot<A>(dy + row, y + row, D);
      }
  });
  sums.finish(a.dsinks.t.as<A>(), a.dsinks.mode);
}

}  // namespace

void run_cpu(Ctx& ctx, const AttentionSinkGrad& a) {
  dispatch_float(a.dy.dtype, [&]<class T>() { sink_grad<T>(ctx, a); });
}

}  // namespace qtrain::ops
