#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// y [N] (+)= sum over rows of x [..., N], f32 sums in a fixed order (bias gradients).
struct ColumnSum {
  Sink y;
  ConstTensor x;
};
/// out f64 [1] = sum of squares of x (f32 or f64), or is added to; fixed order, f64 partial sums.
struct SumSquares {
  Sink out;
  ConstTensor x;
};
/// out f64 [1] = or += sum of x.
struct Sum {
  Sink out;
  ConstTensor x;
};
void run_cpu(Ctx&, const ColumnSum&);
void run_cuda(Ctx&, const ColumnSum&);
void run_cpu(Ctx&, const SumSquares&);
void run_cuda(Ctx&, const SumSquares&);
void run_cpu(Ctx&, const Sum&);
void run_cuda(Ctx&, const Sum&);

inline void column_sum(Ctx& ctx, const ColumnSum& a) {
  if (!a.y.wanted()) return;
  check(a.y.t.numel() == a.x.shape[-1], "column_sum: one sum per column");
  dispatch(ctx, a);
}
inline void sum_squares(Ctx& ctx, const SumSquares& a) {
  dispatch(ctx, a);
}
inline void sum(Ctx& ctx, const Sum& a) {
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
