#include "kernels/split_rope.h"

#include "kernels/cpu/rope_row.h"

namespace qtrain::ops {
namespace {

/// The heads of a token, concatenated and as separate tensors.
template <class T>
struct SplitToken {
  const SplitHeads& n;
  T *q, *k, *v;

  bool turns(std::int64_t head) const { return head < n.queries + n.keys; }
  T* own(std::int64_t t, std::int64_t head) const {
    if (head < n.queries) return q + (t * n.queries + head) * n.width;
    const std::int64_t key = head - n.queries;
    return (key < n.keys ? k + (t * n.keys + key) * n.width : v + (t * n.keys + key - n.keys) * n.width);
  }
};

template <class T>
void split(Ctx& ctx, const SplitRope& a) {
  const SplitHeads n(a.q.shape, a.k.shape, a.v.shape, a.qkv.numel());
  const SplitToken<T> to{n, a.q.as<T>(), a.k.as<T>(), a.v.as<T>()};
  const T* qkv = a.qkv.as<T>();
  const Angles<T> angles = angles_of<T>(a);
  for_rows(ctx, n.tokens, n.all() * n.width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t row = angles.row(t);
      for (std::int64_t h = 0; h < n.all(); ++h) {
        const T* x = qkv + (t * n.all() + h) * n.width;
        T* y = to.own(t, h);
        const std::int64_t turned = to.turns(h) ? 2 * angles.half : 0;
        if (turned > 0) rotate<T>(y, x, angles, row);
        std::copy(x + turned, x + n.width, y + turned);
      }
    }
  });
}

template <class T>
void join(Ctx& ctx, const SplitRopeGrad& a) {
  using A = simd::Acc<T>;
  const SplitHeads n(a.dq.shape, a.dk.shape, a.dv.shape, a.dqkv.t.numel());
  const SplitToken<const T> from{n, a.dq.as<T>(), a.dk.as<T>(), a.dv.as<T>()};
  T* dqkv = a.dqkv.t.as<T>();
  const Angles<T> angles = angles_of<T>(a);
  for_rows(ctx, n.tokens, n.all() * n.width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t row = angles.row(t);
      for (std::int64_t h = 0; h < n.all(); ++h) {
        const T* dy = from.own(t, h);
        T* dx = dqkv + (t * n.all() + h) * n.width;
        const std::int64_t turned = from.turns(h) ? 2 * angles.half : 0;
        if (turned > 0) rotate_back<T, T>({dx, a.dqkv.mode}, dy, angles, row);
        simd::each<A>(n.width - turned, [&](std::int64_t i, auto lanes) {
          write<A>(dx + turned + i, simd::load<A>(dy + turned + i, lanes), lanes, a.dqkv.mode);
        });
      }
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const SplitRope& a) {
  dispatch_float(a.qkv.dtype, [&]<class T>() { split<T>(ctx, a); });
}
void run_cpu(Ctx& ctx, const SplitRopeGrad& a) {
  dispatch_float(a.dq.dtype, [&]<class T>() { join<T>(ctx, a); });
}

}  // namespace qtrain::ops
