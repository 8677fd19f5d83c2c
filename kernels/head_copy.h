#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Copies or adds heads [x_first, x_first + count) of x [T, Hx, D] to heads [y_first, y_first + count) of y [T, Hy, D];
/// both have the same float dtype.
struct CopyHeads {
  Sink y;
  ConstTensor x;
  std::int64_t y_first = 0, x_first = 0, count = 0;
};
void run_cpu(Ctx&, const CopyHeads&);
void run_cuda(Ctx&, const CopyHeads&);

inline void copy_heads(Ctx& ctx, const CopyHeads& a) {
  if (!a.y.wanted()) return;
  const Shape &y = a.y.t.shape, &x = a.x.shape;
  check(y.rank == 3 && x.rank == 3 && y[0] == x[0] && y[2] == x[2] && a.y.t.dtype == a.x.dtype,
        "copy_heads: tensors are [T, H, D] of one T, D and dtype");
  check(a.y_first >= 0 && a.y_first + a.count <= y[1] && a.x_first >= 0 && a.x_first + a.count <= x[1],
        "copy_heads: heads are out of range");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
