#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Rotary position embedding (Su et al. 2021) of queries [T, Hq, D] and keys [T, Hk, D] (pairs (i, i + D/2), as in
/// transformers), after an RMS norm over D if they have a `weight` [D] (qk-norm), which uses weight + weight_offset as
/// rms_norm does. cos, sin [P, D/2] in f32 (f64 with f64 x); positions i32 [T], all < P. inv_rms [T, H] is written if
/// `weight` is given. y may be x. Without keys, only the queries are rotated.
struct Rope {
  struct Heads {
    Tensor y;
    ConstTensor x;
    ConstTensor weight = {};
    Tensor inv_rms = {};

    bool given() const { return x.shape.rank > 0; }
  };
  Heads q, k = {};
  ConstTensor cos, sin, positions;
  double eps = 0, weight_offset = 0;
};
/// The gradient: the inverse rotation, then the norm's gradient. x, weight and inv_rms are only read with a norm. dx
/// may be dy.
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
  Heads q, k = {};
  ConstTensor cos, sin, positions;
  double weight_offset = 0;
};
void run_cpu(Ctx&, const Rope&);
void run_cuda(Ctx&, const Rope&);
void run_cpu(Ctx&, const RopeGrad&);
void run_cuda(Ctx&, const RopeGrad&);

inline void rope(Ctx& ctx, const Rope& a) {
  for (const Rope::Heads* h : {&a.q, &a.k}) {
    if (!h->given()) continue;
    check(h->x.shape.rank == 3 && h->y.shape == h->x.shape, "rope: x and y are [T, H, D]");
    check(h->x.shape[2] % 2 == 0 && a.cos.shape[1] == h->x.shape[2] / 2, "rope: tables are [P, D/2]");
    check(a.positions.numel() == h->x.shape[0], "rope: one position per token");
    check(bool(h->weight) == bool(a.q.weight), "rope: queries and keys both have a norm, or neither does");
    check(h->x.dtype == a.q.x.dtype, "rope: queries and keys have one type");
  }
  dispatch(ctx, a);
}
inline void rope_grad(Ctx& ctx, const RopeGrad& a) {
  for (const RopeGrad::Heads* h : {&a.q, &a.k}) {
    if (!h->given()) continue;
    check(h->dy.shape.rank == 3 && (!h->dx.wanted() || h->dx.t.shape == h->dy.shape),
          "rope_grad: dx and dy are [T, H, D]");
    check(2 * a.cos.shape[1] == h->dy.shape[2], "rope_grad: tables are [P, D/2]");
    check(a.positions.numel() == h->dy.shape[0], "rope_grad: one position per token");
    check(h->dy.dtype == a.q.dy.dtype, "rope_grad: queries and keys have one type");
    check(bool(h->weight) == bool(a.q.weight), "rope_grad: queries and keys both have a norm, or neither does");
  }
  if (a.q.wanted() || a.k.wanted()) dispatch(ctx, a);
}

}  // namespace qtrain::ops
