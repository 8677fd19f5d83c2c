#include "kernels/rms_norm.h"

#include "kernels/cpu/loops.h"
#include "kernels/cpu/rms_row.h"
#include "kernels/cpu/row_largest.h"

namespace qtrain::ops {
namespace {

using simd::Acc;

template <class T>
void forward(Ctx& ctx, const RmsNorm& a) {
  using A = Acc<T>;
  const std::int64_t C = a.x.shape[-1], step = a.y_stride == 0 ? C : a.y_stride;
  T* y = a.y.as<T>();
  A* inv_rms = a.inv_rms.as<A>();
  const T* x = a.x.as<T>();
  const OffsetWeight<A> weight(a.weight, a.weight_offset);
  for_rows(ctx, a.x.shape.rows(), C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      inv_rms[r] = inverse_rms<T>(x + r * C, C, a.eps);
      normalize<T>(y + r * step, x + r * C, weight.data(), {.inv_rms = inv_rms[r], .n = C});
    }
  });
  find_row_largest<T>(ctx, a.largest, a.y);
}

template <class T>
void backward(Ctx& ctx, const RmsNormGrad& a) {
  using A = Acc<T>;
  const std::int64_t C = a.x.shape[-1], rows = a.x.shape.rows();
  const T *dy = a.dy.as<T>(), *x = a.x.as<T>();
  const OffsetWeight<A> weight(a.weight, a.weight_offset);
  const A* inv_rms = a.inv_rms.as<A>();
  T* dx = a.dx.wanted() ? a.dx.t.as<T>() : nullptr;
  // In each row dweight comes before dx, since dx may be dy.
  const auto one_row = [&](std::int64_t r, A* dweight) {
    const NormRow<A> row{.inv_rms = inv_rms[r], .n = C};
    if (dweight) add_weight_grad<T>(dweight, dy + r * C, x + r * C, row);
    if (dx) normalize_grad<T>({dx + r * C, a.dx.mode}, dy + r * C, {x + r * C, weight.data(), row});
  };
  if (!a.dweight.wanted())
    return for_rows(ctx, rows, C, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) one_row(r, nullptr);
    });
  RowSums<A> dweight(ctx, rows, C);
  dweight.run([&](std::int64_t begin, std::int64_t end, A* part) {
    for (std::int64_t r = begin; r < end; ++r) one_row(r, part);
  });
  dispatch_float(a.dweight.t.dtype, [&]<class W>() { dweight.finish(a.dweight.t.as<W>(), a.dweight.mode); });
}

}  // namespace

void run_cpu(Ctx& ctx, const RmsNorm& a) {
  dispatch_float(a.x.dtype, [&]<class T>() { forward<T>(ctx, a); });
}
void run_cpu(Ctx& ctx, const RmsNormGrad& a) {
  dispatch_float(a.x.dtype, [&]<class T>() { backward<T>(ctx, a); });
}

}  // namespace qtrain::ops
