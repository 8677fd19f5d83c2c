#include "kernels/head_copy.h"

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

template <class T>
void copy_heads_as(Ctx& ctx, const CopyHeads& a) {
  using A = simd::Acc<T>;
  const std::int64_t D = a.x.shape[2], n = a.count * D, y_step = a.y.t.shape[1] * D, x_step = a.x.shape[1] * D;
  T* y = a.y.t.as<T>() + a.y_first * D;
  const T* x = a.x.as<T>() + a.x_first * D;
  for_rows(ctx, a.x.shape[0], n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      simd::each<A>(n, [&](std::int64_t i, auto lanes) {
        write<A>(y + t * y_step + i, simd::load<A>(x + t * x_step + i, lanes), lanes, a.y.mode);
      });
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const CopyHeads& a) {
  dispatch_float(a.x.dtype, [&]<class T>() { copy_heads_as<T>(ctx, a); });
}

}  // namespace qtrain::ops
