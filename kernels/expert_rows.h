#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// y[p] = x[slots[p] / k]: each token's row, repeated for each of its k experts, in the order of ExpertOrder. Its
/// gradient is CombineRows without weights. x [T, C], slots i32 [T * k], y [T * k, C] of x's type.
struct DispatchRows {
  Tensor y;
  ConstTensor x, slots;
  std::int64_t k = 1;
};

/// y[t] (+)= sum over j of weights[t, j] * x[places[t * k + j]], in f32 (f64) over j in order. y [T, C], x [T * k, C]
/// of y's type in the order of ExpertOrder, places i32 [T, k], weights f32 (f64 with f64) [T, k], or empty: all are 1.
struct CombineRows {
  Sink y;
  ConstTensor x, places;
  ConstTensor weights = {};
};

/// dx[p] (+)= weights[slots[p]] * dy[slots[p] / k]; dweights[t, j] (+)= dy[t] . x[places[t * k + j]], the sum in f32
/// (f64). dx [T * k, C] and x as in CombineRows, dy [T, C] of the same type; dweights f32 (f64 with f64) [T, k]. x is
/// only read for dweights; weights may be empty: all are 1.
struct CombineRowsGrad {
  Sink dx, dweights;
  ConstTensor dy, x, slots, places;
  ConstTensor weights = {};
};
void run_cpu(Ctx&, const DispatchRows&);
void run_cuda(Ctx&, const DispatchRows&);
void run_cpu(Ctx&, const CombineRows&);
void run_cuda(Ctx&, const CombineRows&);
void run_cpu(Ctx&, const CombineRowsGrad&);
void run_cuda(Ctx&, const CombineRowsGrad&);

inline void dispatch_rows(Ctx& ctx, const DispatchRows& a) {
  check(a.y.shape[-1] == a.x.shape[-1] && a.y.shape.rows() == a.slots.numel() &&
            a.slots.numel() == a.x.shape.rows() * a.k && a.y.dtype == a.x.dtype,
        "dispatch_rows: shapes differ");
  dispatch(ctx, a);
}
inline void combine_rows(Ctx& ctx, const CombineRows& a) {
  if (!a.y.wanted()) return;
  const std::int64_t T = a.y.t.shape.rows();
  check(a.y.t.shape[-1] == a.x.shape[-1] && a.x.shape.rows() == a.places.numel() && a.y.t.dtype == a.x.dtype && T > 0 &&
            a.places.numel() % T == 0 && (!a.weights || a.weights.numel() == a.places.numel()),
        "combine_rows: shapes differ");
  dispatch(ctx, a);
}
inline void combine_rows_grad(Ctx& ctx, const CombineRowsGrad& a) {
  const std::int64_t T = a.dy.shape.rows(), n = a.slots.numel();
  check(T > 0 && n % T == 0 && a.places.numel() == n && (!a.weights || a.weights.numel() == n),
        "combine_rows_grad: shapes differ");
  check(!a.dx.wanted() || (a.dx.t.shape.rows() == n && a.dx.t.shape[-1] == a.dy.shape[-1]),
        "combine_rows_grad: dx has another shape");
  check(!a.dweights.wanted() || (a.dweights.t.numel() == n && a.x.shape.rows() == n),
        "combine_rows_grad: one weight per row");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
