#include "kernels/rope.h"

#include <vector>

#include "kernels/cpu/rope_row.h"

namespace qtrain::ops {
namespace {

using simd::Acc;

template <class T>
void forward(Ctx& ctx, const Rope& a) {
  using A = Acc<T>;
  const std::int64_t H = a.x.shape[1], D = a.x.shape[2];
  T* y = a.y.as<T>();
  const T* x = a.x.as<T>();
  const Angles<T> angles = angles_of<T>(a);
  const OffsetWeight<A> offset_weight(a.weight, a.weight_offset);
  const A* weight = offset_weight.data();
  A* inv_rms = weight ? a.inv_rms.as<A>() : nullptr;
  for_rows(ctx, a.x.shape[0], H * D, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t row = angles.row(t);
      for (std::int64_t i = t * H; i < (t + 1) * H; ++i) {
        const T* in = x + i * D;
        if (weight) {
          inv_rms[i] = inverse_rms<T>(in, D, a.eps);
          normalize<T>(y + i * D, in, weight, {.inv_rms = inv_rms[i], .n = D});
          in = y + i * D;
        }
        rotate<T>(y + i * D, in, angles, row);
      }
    }
  });
}

/// With a head norm: rotates dy back, then applies the gradient of the norm.
template <class T>
void backward_norm(Ctx& ctx, const RopeGrad& a) {
  using A = Acc<T>;
  const std::int64_t H = a.dy.shape[1], D = a.dy.shape[2];
  const T *dy = a.dy.as<T>(), *x = a.x.as<T>();
  const OffsetWeight<A> weight(a.weight, a.weight_offset);
  const A* inv_rms = a.inv_rms.as<A>();
  T* dx = a.dx.wanted() ? a.dx.t.as<T>() : nullptr;
  const Angles<T> angles = angles_of<T>(a);
  RowSums<A> dweight(ctx, a.dy.shape[0] * H, D);
  dweight.run([&](std::int64_t begin, std::int64_t end, A* part) {
    std::vector<T> turned(static_cast<std::size_t>(D));
    for (std::int64_t i = begin; i < end; ++i) {
      const NormRow<A> row{.inv_rms = inv_rms[i], .n = D};
      rotate_back<T, T>({turned.data(), Sink::Mode::store}, dy + i * D, angles, angles.row(i / H));
      add_weight_grad<T>(part, turned.data(), x + i * D, row);
      if (dx) normalize_grad<T>({dx + i * D, a.dx.mode}, turned.data(), {x + i * D, weight.data(), row});
    }
  });
  if (a.dweight.wanted())
    dispatch_float(a.dweight.t.dtype, [&]<class W>() { dweight.finish(a.dweight.t.as<W>(), a.dweight.mode); });
}

template <class T>
void backward(Ctx& ctx, const RopeGrad& a) {
  if (a.weight) return backward_norm<T>(ctx, a);
  if (!a.dx.wanted()) return;
  const std::int64_t H = a.dy.shape[1], D = a.dy.shape[2];
  const T* dy = a.dy.as<T>();
  T* dx = a.dx.t.as<T>();
  const Angles<T> angles = angles_of<T>(a);
  for_rows(ctx, a.dy.shape[0], H * D, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * H; i < end * H; ++i)
      rotate_back<T, T>({dx + i * D, a.dx.mode}, dy + i * D, angles, angles.row(i / H));
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const Rope& a) {
  dispatch_float(a.x.dtype, [&]<class T>() { forward<T>(ctx, a); });
}
void run_cpu(Ctx& ctx, const RopeGrad& a) {
  dispatch_float(a.dy.dtype, [&]<class T>() { backward<T>(ctx, a); });
}

}  // namespace qtrain::ops
