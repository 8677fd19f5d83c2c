#include "kernels/rope.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/rope_row.h"

namespace qtrain::ops {
namespace {

using simd::Acc;

/// Where the heads of x [T, H, D] are, if its tokens are `step` elements apart.
struct HeadPlaces {
  std::int64_t H, D, step;

  HeadPlaces(const Shape& s, std::int64_t stride) : H(s[1]), D(s[2]), step(token_step(s, stride)) {}
  /// Offset of head i, counted over all tokens.
  std::int64_t offset_of(std::int64_t i) const { return i / H * step + i % H * D; }
};

template <class T>
void copy_values(Ctx& ctx, const Rope& a) {
  const HeadPlaces x(a.v.x.shape, a.x_stride);
  const std::int64_t width = x.H * x.D;
  for_rows(ctx, a.v.x.shape[0], width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      std::copy_n(a.v.x.as<T>() + t * x.step, width, a.v.y.as<T>() + t * width);
  });
}

template <class T>
void copy_values_grad(Ctx& ctx, const RopeGrad& a) {
  using A = Acc<T>;
  const HeadPlaces x(a.v.dy.shape, a.x_stride);
  const std::int64_t width = x.H * x.D;
  const T* dy = a.v.dy.as<T>();
  T* dx = a.v.dx.t.as<T>();
  for_rows(ctx, a.v.dy.shape[0], width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      simd::each<A>(width, [&](std::int64_t i, auto lanes) {
        write<A>(dx + t * x.step + i, simd::load<A>(dy + t * width + i, lanes), lanes, a.v.dx.mode);
      });
  });
}

template <class T>
void forward(Ctx& ctx, const Rope& a, const Rope::Heads& heads) {
  using A = Acc<T>;
  const HeadPlaces places(heads.x.shape, a.x_stride);
  const std::int64_t H = places.H, D = places.D;
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
        const T* in = x + places.offset_of(i);
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
  const HeadPlaces places(heads.dy.shape, a.x_stride);
  const std::int64_t H = places.H, D = places.D;
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
      const T* in = x + places.offset_of(i);
      add_weight_grad<T>(part, turned.data(), in, row);
      if (dx) normalize_grad<T>({dx + places.offset_of(i), heads.dx.mode}, turned.data(), {in, weight.data(), row});
    }
  });
  const Sink& to = heads.dweight;
  if (to.wanted()) dispatch_float(to.t.dtype, [&]<class W>() { dweight.finish(to.t.as<W>(), to.mode); });
}

template <class T>
void backward(Ctx& ctx, const RopeGrad& a, const RopeGrad::Heads& heads) {
  if (heads.weight) return backward_norm<T>(ctx, a, heads);
  const HeadPlaces places(heads.dy.shape, a.x_stride);
  const std::int64_t H = places.H, D = places.D;
  const T* dy = heads.dy.as<T>();
  T* dx = heads.dx.t.as<T>();
  const Angles<T> angles = angles_of<T>(a);
  for_rows(ctx, heads.dy.shape[0], H * D, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * H; i < end * H; ++i)
      rotate_back<T, T>({dx + places.offset_of(i), heads.dx.mode}, dy + i * D, angles, angles.row(i / H));
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const Rope& a) {
  dispatch_float(a.q.x.dtype, [&]<class T>() {
    forward<T>(ctx, a, a.q);
    if (a.k.given()) forward<T>(ctx, a, a.k);
    if (a.v.given()) copy_values<T>(ctx, a);
  });
}
void run_cpu(Ctx& ctx, const RopeGrad& a) {
  for (const RopeGrad::Heads* heads : {&a.q, &a.k})
    if (heads->wanted()) dispatch_float(heads->dy.dtype, [&]<class T>() { backward<T>(ctx, a, *heads); });
  if (a.v.wanted()) dispatch_float(a.v.dy.dtype, [&]<class T>() { copy_values_grad<T>(ctx, a); });
}

}  // namespace qtrain::ops
