#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// y [N] (+)= sum over rows of x [..., N], f32 sums in a fixed order (bias gradients). x_stride: elements from one
/// row of x to the next; 0 means N.
struct ColumnSum {
  Sink y;
  ConstTensor x;
  std::int64_t x_stride = 0;

  std::int64_t row_step() const { return x_stride == 0 ? x.shape[-1] : x_stride; }
};
/// out f64 [1] = or += the sum of squares of x (f32 or f64); fixed order, f64 partial sums.
struct SumSquares {
  Sink out;
  ConstTensor x;
};
/// out f64 [1] = or += the sum of x.
struct Sum {
  Sink out;
  ConstTensor x;
};
/// out f64 [ceil(n / segment)]: the sum of squares of each segment of `segment` elements of x [n]; the last may be
/// shorter. A segment's sum depends only on its elements, not on its position in a larger tensor.
struct SegmentSquares {
  Tensor out;
  ConstTensor x;
  std::int64_t segment;
};
void run_cpu(Ctx&, const ColumnSum&);
void run_cuda(Ctx&, const ColumnSum&);
void run_cpu(Ctx&, const SumSquares&);
void run_cuda(Ctx&, const SumSquares&);
void run_cpu(Ctx&, const Sum&);
void run_cuda(Ctx&, const Sum&);
void run_cpu(Ctx&, const SegmentSquares&);
void run_cuda(Ctx&, const SegmentSquares&);

inline void column_sum(Ctx& ctx, const ColumnSum& a) {
  if (!a.y.wanted()) return;
  check(a.y.t.numel() == a.x.shape[-1], "column_sum: one sum per column");
  check(a.row_step() >= a.x.shape[-1], "column_sum: rows of x overlap");
  dispatch(ctx, a);
}
inline void sum_squares(Ctx& ctx, const SumSquares& a) {
  dispatch(ctx, a);
}
inline void sum(Ctx& ctx, const Sum& a) {
  dispatch(ctx, a);
}

inline void segment_squares(Ctx& ctx, const SegmentSquares& a) {
  check(a.segment > 0 && a.out.numel() == (a.x.numel() + a.segment - 1) / a.segment,
        "segment_squares: one sum per segment");
  if (a.x.numel() > 0) dispatch(ctx, a);
}

}  // namespace qtrain::ops
