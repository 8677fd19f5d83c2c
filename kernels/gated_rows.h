#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// y[t] = a[t] + sigmoid(gate[t]) * b[t], rounded once: a branch with a gate for each token (the shared expert of
/// Qwen2-MoE) is added to the residual stream. y, a, b [T, C], gate [T] or [T, 1], all of one type. y may be a or b.
struct GatedRows {
  Tensor y;
  ConstTensor a, b, gate;
};
/// With s = sigmoid(gate[t]): db[t] (+)= s * dy[t]; dgate[t] (+)= s * (1 - s) * dy[t] . b[t], the sum in f32 (f64). The
/// gradient of a is dy. b is only read for dgate.
struct GatedRowsGrad {
  Sink db, dgate;
  ConstTensor dy, b, gate;
};
void run_cpu(Ctx&, const GatedRows&);
void run_cuda(Ctx&, const GatedRows&);
void run_cpu(Ctx&, const GatedRowsGrad&);
void run_cuda(Ctx&, const GatedRowsGrad&);

inline void gated_rows(Ctx& ctx, const GatedRows& a) {
  check(a.y.numel() == a.a.numel() && a.y.numel() == a.b.numel() && a.gate.numel() == a.y.shape.rows(),
        "gated_rows: y, a and b have one shape, and one gate per row");
  dispatch(ctx, a);
}
inline void gated_rows_grad(Ctx& ctx, const GatedRowsGrad& a) {
  if (!a.db.wanted() && !a.dgate.wanted()) return;
  check(a.gate.numel() == a.dy.shape.rows() && (!a.db.wanted() || a.db.t.numel() == a.dy.numel()) &&
            (!a.dgate.wanted() || (a.dgate.t.numel() == a.gate.numel() && a.b.numel() == a.dy.numel())),
        "gated_rows_grad: shapes differ");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
