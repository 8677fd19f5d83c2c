#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// RMSNorm (Zhang and Sennrich 2019): y = x * inv_rms * (weight + weight_offset), inv_rms = 1 / sqrt(mean(x^2) + eps)
/// per row. x, y [..., C]; weight [C] and inv_rms [rows] in f32 (f64 with f64 x). weight_offset 1 is for weights stored
/// as their difference from 1 (Gemma). y_stride: elements from one row of y to the next; 0 means C.
/// as their difference from 1 (Gemma). `largest`, if given, has inv_rms's shape and type: the largest magnitude of each
/// row of y, or NaN if there is one, for a GEMM in FP8 (kernels/fp8.h).
struct RmsNorm {
  Tensor y, inv_rms;
  ConstTensor x, weight;
  double eps;
  double weight_offset = 0;
  std::int64_t y_stride = 0;
  Tensor largest = {};
};
/// dx (+)= inv_rms * (dy*w - x * inv_rms^2 * mean(dy*w*x)), w = weight + weight_offset;
/// dweight (+)= sum over rows of dy * x * inv_rms. dx may be dy.
struct RmsNormGrad {
  Sink dx, dweight;
  ConstTensor dy, x, weight, inv_rms;
  double weight_offset = 0;
};
void run_cpu(Ctx&, const RmsNorm&);
void run_cuda(Ctx&, const RmsNorm&);
void run_cpu(Ctx&, const RmsNormGrad&);
void run_cuda(Ctx&, const RmsNormGrad&);

inline void rms_norm(Ctx& ctx, const RmsNorm& a) {
  check(a.x.shape[-1] == a.weight.numel(), "rms_norm: weight must match the last dimension of x");
  check(a.y.numel() == a.x.numel() && a.inv_rms.numel() == a.x.shape.rows(), "rms_norm: shapes differ");
  check(a.y_stride == 0 || a.y_stride >= a.x.shape[-1], "rms_norm: rows of y overlap");
  check(!a.largest || a.largest.numel() == a.inv_rms.numel(), "rms_norm: another number of largest magnitudes");
  dispatch(ctx, a);
}
inline void rms_norm_grad(Ctx& ctx, const RmsNormGrad& a) {
  check(a.dy.numel() == a.x.numel() && a.x.shape[-1] == a.weight.numel(), "rms_norm_grad: shapes differ");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
