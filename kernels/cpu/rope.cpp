#include "kernels/rope.h"

#include <vector>

#include "kernels/cpu/rope_row.h"

namespace qtrain::ops {
namespace {

using simd::Acc;

template <class T>
void forward(Ctx& ctx, const Rope& a, const Rope::Heads& heads) {
  using A = Acc<T>;
  const std::int64_t H = heads.x.shape[1], D = heads.x.shape[2];
  T* y = heads.y.as<T>();
  const T* x = heads.x.as<T>();
  const Angles<T> angles = angles_of<T>(a);
  const OffsetWeight<A> offset_weight(heads.weight, a.weight_offset);
  const A* weight = offset_weight.data();
  A* inv_rms = weight ? heads.inv_rms.as<A>() : nullptr;
  for_rows(ctx, heads.x.shape[0], H * D, [&](std::int64_t begin, std::int64_t end) {
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
void backward_norm(Ctx& ctx, const RopeGrad& a, const RopeGrad::Heads& heads) {
  using A = Acc<T>;
  const std::int64_t H = heads.dy.shape[1], D = heads.dy.shape[2];
  const T *dy = heads.dy.as<T>(), *x = heads.x.as<T>();
  const OffsetWeight<A> weight(heads.weight, a.weight_offset);
  const A* inv_rms = heads.inv_rms.as<A>();
  T* dx = heads.dx.wanted() ? heads.dx.t.as<T>() : nullptr;
  const Angles<T> angles = angles_of<T>(a);
  RowSums<A> dweight(ctx, heads.dy.shape[0] * H, D);
  dweight.run([&](std::int64_t begin, std::int64_t end, A* part) {
    std::vector<T> turned(static_cast<std::size_t>(D));
    for (std::int64_t i = begin; i < end; ++i) {
      const NormRow<A> row{.inv_rms = inv_rms[i], .n = D};
      rotate_back<T, T>({turned.data(), Sink::Mode::store}, dy + i * D, angles, angles.row(i / H));
      add_weight_grad<T>(part, turned.data(), x + i * D, row);
      if (dx) normalize_grad<T>({dx + i * D, heads.dx.mode}, turned.data(), {x + i * D, weight.data(), row});
    }
  });
  const Sink& to = heads.dweight;
  if (to.wanted()) dispatch_float(to.t.dtype, [&]<class W>() { dweight.finish(to.t.as<W>(), to.mode); });
}

template <class T>
void backward(Ctx& ctx, const RopeGrad& a, const RopeGrad::Heads& heads) {
  if (heads.weight) return backward_norm<T>(ctx, a, heads);
  const std::int64_t H = heads.dy.shape[1], D = heads.dy.shape[2];
  const T* dy = heads.dy.as<T>();
  T* dx = heads.dx.t.as<T>();
  const Angles<T> angles = angles_of<T>(a);
  for_rows(ctx, heads.dy.shape[0], H * D, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * H; i < end * H; ++i)
      rotate_back<T, T>({dx + i * D, heads.dx.mode}, dy + i * D, angles, angles.row(i / H));
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const Rope& a) {
  dispatch_float(a.q.x.dtype, [&]<class T>() {
    forward<T>(ctx, a, a.q);
    if (a.k.given()) forward<T>(ctx, a, a.k);
  });
}
void run_cpu(Ctx& ctx, const RopeGrad& a) {
  for (const RopeGrad::Heads* heads : {&a.q, &a.k})
    if (heads->wanted()) dispatch_float(heads->dy.dtype, [&]<class T>() { backward<T>(ctx, a, *heads); });
}

}  // namespace qtrain::ops
