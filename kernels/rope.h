#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Rotary position embedding (Su et al. 2021) of queries [T, Hq, D] and keys [T, Hk, D] (pairs (i, i + D/2), as in
/// transformers), after an RMS norm over D if they have a `weight` [D] (qk-norm), which uses weight + weight_offset as
/// rms_norm does. cos, sin [P, D/2] in f32 (f64 with f64 x); positions i32 [T], all < P. inv_rms [T, H] is written if
/// `weight` is given. Values [T, Hk, D] are copied. Keys and values are optional. If the x of all three are columns of
/// one matrix, x_stride is the number of elements in its rows. y may be x if there is no stride.
struct Rope {
  struct Heads {
    Tensor y;
    ConstTensor x;
    ConstTensor weight = {};
    Tensor inv_rms = {};

    bool given() const { return x.shape.rank > 0; }
  };
  Heads q, k = {}, v = {};
  ConstTensor cos, sin, positions;
  double eps = 0, weight_offset = 0;
  std::int64_t x_stride = 0;
};
/// The gradient: the inverse rotation, then the norm's gradient; for values it is dy. x, weight and inv_rms are only
/// read with a norm. x_stride applies to dx and x. dx may be dy if there is no stride.
struct RopeGrad {
  struct Heads {
    Sink dx = discard();
    ConstTensor dy;
    ConstTensor x = {}, weight = {}, inv_rms = {};
    Sink dweight = discard();

    bool given() const { return dy.shape.rank > 0; }
    /// Whether there is a gradient to compute.
    bool wanted() const { return given() && (dx.wanted() || (weight && dweight.wanted())); }
  };
  Heads q, k = {}, v = {};
  ConstTensor cos, sin, positions;
  double weight_offset = 0;
  std::int64_t x_stride = 0;
};
/// Elements from one token of x [T, H, D] to the next, with a stride as in Rope.
inline std::int64_t token_step(const Shape& x, std::int64_t stride) {
  return stride == 0 ? x[1] * x[2] : stride;
}
void run_cpu(Ctx&, const Rope&);
void run_cuda(Ctx&, const Rope&);
void run_cpu(Ctx&, const RopeGrad&);
void run_cuda(Ctx&, const RopeGrad&);

inline void rope(Ctx& ctx, const Rope& a) {
  for (const Rope::Heads* h : {&a.q, &a.k, &a.v}) {
    if (!h->given()) continue;
    check(h->x.shape.rank == 3 && h->y.shape == h->x.shape, "rope: x and y are [T, H, D]");
    check(token_step(h->x.shape, a.x_stride) >= h->x.shape[1] * h->x.shape[2], "rope: tokens of x overlap");
    check(h->x.shape[2] % 2 == 0 && a.cos.shape[1] == h->x.shape[2] / 2, "rope: tables are [P, D/2]");
    check(a.positions.numel() == h->x.shape[0], "rope: one position per token");
    check(bool(h->weight) == (a.q.weight && h != &a.v),
          "rope: queries and keys both have a norm, or neither does; values have none");
    check(h->x.dtype == a.q.x.dtype, "rope: queries and keys have one type");
  }
  dispatch(ctx, a);
}
inline void rope_grad(Ctx& ctx, const RopeGrad& a) {
  for (const RopeGrad::Heads* h : {&a.q, &a.k, &a.v}) {
    if (!h->given()) continue;
    check(h->dy.shape.rank == 3 && (!h->dx.wanted() || h->dx.t.shape == h->dy.shape),
          "rope_grad: dx and dy are [T, H, D]");
    check(token_step(h->dy.shape, a.x_stride) >= h->dy.shape[1] * h->dy.shape[2], "rope_grad: tokens of x overlap");
    check(2 * a.cos.shape[1] == h->dy.shape[2], "rope_grad: tables are [P, D/2]");
    check(a.positions.numel() == h->dy.shape[0], "rope_grad: one position per token");
    check(h->dy.dtype == a.q.dy.dtype, "rope_grad: queries and keys have one type");
    check(bool(h->weight) == (a.q.weight && h != &a.v),
          "rope_grad: queries and keys both have a norm, or neither does; values have none");
  }
  if (a.q.wanted() || a.k.wanted() || a.v.wanted()) dispatch(ctx, a);
}

}  // namespace qtrain::ops
