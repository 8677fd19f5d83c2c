#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Weight-decomposed adapters (DoRA, Liu et al. 2024, as PEFT computes it): with V = W + scale * B A, each row of V is
/// normalized and multiplied by a learned magnitude m_j. Gradients treat the norms of V as constants.
///
/// norm [out] = L2 norms of the rows of W + scale * B A; W [out, in] of any float type, A [r, in] and B [out, r] f32,
/// or f64 with an f64 norm. Does not materialize the matrix.
struct RowNorms {
  Tensor norm;
  ConstTensor w, a, b;
  double scale;
};
/// y [T, out] = or += (m_j / norm_j + shift) * x + bias; if norm_j is 0, m_j / norm_j counts as 0. Bias [out] is
/// optional. x may be y.
struct ScaleToMagnitude {
  Sink y;
  ConstTensor x, magnitude, norm;
  ConstTensor bias = {};
  double shift = 0;
};
/// dm [out] = or += sum over t of dy * v / norm_j, where v [T, out] = V x. dy and v may differ in type.
struct MagnitudeGrad {
  Sink dmagnitude;
  ConstTensor dy, v, norm;
};
void run_cpu(Ctx&, const RowNorms&);
void run_cuda(Ctx&, const RowNorms&);
void run_cpu(Ctx&, const ScaleToMagnitude&);
void run_cuda(Ctx&, const ScaleToMagnitude&);
void run_cpu(Ctx&, const MagnitudeGrad&);
void run_cuda(Ctx&, const MagnitudeGrad&);

inline void row_norms(Ctx& ctx, const RowNorms& n) {
  const std::int64_t out = n.w.shape[0], in = n.w.shape[1], r = n.a.shape[0];
  check(n.norm.numel() == out && n.a.shape == Shape{r, in} && n.b.shape == Shape{out, r}, "row_norms: shapes differ");
  check(n.a.dtype == n.norm.dtype && n.b.dtype == n.norm.dtype, "row_norms: A, B and norms are of one type");
  dispatch(ctx, n);
}
inline void scale_to_magnitude(Ctx& ctx, const ScaleToMagnitude& s) {
  check(s.y.t.shape == s.x.shape && s.magnitude.numel() == s.x.shape[-1] && s.norm.numel() == s.x.shape[-1],
        "scale_to_magnitude: shapes differ");
  dispatch(ctx, s);
}
inline void magnitude_grad(Ctx& ctx, const MagnitudeGrad& g) {
  if (!g.dmagnitude.wanted()) return;
  check(g.dy.shape == g.v.shape && g.norm.numel() == g.dy.shape[-1], "magnitude_grad: shapes differ");
  dispatch(ctx, g);
}

}  // namespace qtrain::ops
