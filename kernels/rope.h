#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Rotary position embedding (Su et al. 2021) of x [T, H, D] (pairs (i, i + D/2), as in transformers), after an RMS
/// norm over D if `weight` [D] is given (qk-norm), which uses weight + weight_offset as rms_norm does. cos, sin [P,
/// D/2] in f32 (f64 with f64 x); positions i32 [T], all < P. inv_rms [T, H] is written if `weight` is given. y may be
/// x.
struct Rope {
  Tensor y;
  ConstTensor x, cos, sin, positions;
  ConstTensor weight = {};
  Tensor inv_rms = {};
  double eps = 0, weight_offset = 0;
};
/// The gradient: the inverse rotation, then the norm's gradient. x, weight and inv_rms are only read with a norm.
struct RopeGrad {
  Sink dx;
  ConstTensor dy, cos, sin, positions;
  ConstTensor x = {}, weight = {}, inv_rms = {};
  Sink dweight = discard();
  double weight_offset = 0;
};
void run_cpu(Ctx&, const Rope&);
void run_cuda(Ctx&, const Rope&);
void run_cpu(Ctx&, const RopeGrad&);
void run_cuda(Ctx&, const RopeGrad&);

inline void rope(Ctx& ctx, const Rope& a) {
  check(a.x.shape.rank == 3 && a.y.shape == a.x.shape, "rope: x and y are [T, H, D]");
  check(a.x.shape[2] % 2 == 0 && a.cos.shape[1] == a.x.shape[2] / 2, "rope: tables are [P, D/2]");
  check(a.positions.numel() == a.x.shape[0], "rope: one position per token");
  dispatch(ctx, a);
}
inline void rope_grad(Ctx& ctx, const RopeGrad& a) {
  check(a.dy.shape.rank == 3 && a.dx.t.shape == a.dy.shape, "rope_grad: dx and dy are [T, H, D]");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
