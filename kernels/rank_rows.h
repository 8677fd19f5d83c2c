#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// What ranks exchange: few rows, each of all the elements that one of them has. Any float dtype.

/// x [R, ...]: the rows change places, the first with the last and so on.
struct ReverseRows {
  Tensor x;
};
/// y [n] (+)= the rows of x [R, n], one after the other, in f32 (f64 for f64), rounded once.
struct AddRows {
  Sink y;
  ConstTensor x;
};
void run_cpu(Ctx&, const ReverseRows&);
void run_cuda(Ctx&, const ReverseRows&);
void run_cpu(Ctx&, const AddRows&);
void run_cuda(Ctx&, const AddRows&);

inline void reverse_rows(Ctx& ctx, const ReverseRows& a) {
  dispatch(ctx, a);
}
inline void add_rows(Ctx& ctx, const AddRows& a) {
  if (!a.y.wanted()) return;
  check(a.x.shape[0] * a.y.t.numel() == a.x.numel() && a.x.dtype == a.y.t.dtype,
        "add_rows: rows are as long as the sum, of the same dtype");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
