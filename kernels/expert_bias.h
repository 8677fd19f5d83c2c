#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// y[r] += bias[e] for the rows r in [offsets[e], offsets[e + 1]) of every expert e. y [R, N], bias [E, N] in f32 (f64
/// with f64 y), offsets i32 [E + 1] from ExpertOrder. Rows from offsets[E] on are unchanged.
struct ExpertBias {
  Tensor y;
  ConstTensor bias, offsets;
};
/// dbias[e] (+)= the sum of dy over the rows of e, in f32 (f64) and in row order; an expert without rows gets zeros
/// with `store`. dbias [E, N] as bias, dy [R, N].
struct ExpertBiasGrad {
  Sink dbias;
  ConstTensor dy, offsets;
};
void run_cpu(Ctx&, const ExpertBias&);
void run_cuda(Ctx&, const ExpertBias&);
void run_cpu(Ctx&, const ExpertBiasGrad&);
void run_cuda(Ctx&, const ExpertBiasGrad&);

inline void expert_bias(Ctx& ctx, const ExpertBias& a) {
  check(a.y.shape.rank == 2 && a.bias.shape.rank == 2 && a.bias.shape[1] == a.y.shape[1] &&
            a.offsets.numel() == a.bias.shape[0] + 1,
        "expert_bias: y is [R, N], bias [E, N], offsets [E + 1]");
  dispatch(ctx, a);
}
inline void expert_bias_grad(Ctx& ctx, const ExpertBiasGrad& a) {
  if (!a.dbias.wanted()) return;
  const Shape& bias = a.dbias.t.shape;
  check(a.dy.shape.rank == 2 && bias.rank == 2 && bias[1] == a.dy.shape[1] && a.offsets.numel() == bias[0] + 1,
        "expert_bias_grad: dy is [R, N], dbias [E, N], offsets [E + 1]");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
