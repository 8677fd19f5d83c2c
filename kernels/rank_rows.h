#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Ops for exchanges between ranks: a few rows, each with all elements of one rank. Any float dtype.

/// Reverses the order of the rows of x [R, ...].
struct ReverseRows {
  Tensor x;
};
/// y [n] (+)= the sum of the rows of x [R, n], in order, in f32 (f64 for f64), rounded once.
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
