#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// One AdamW step (Loshchilov and Hutter 2019, as torch.optim.AdamW), all tensors [n] in f32 (or all f64):
///   g = grad * control[1]; param -= lr * decay * param; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
///   param -= lr / control[2] * m / (sqrt(v) / sqrt(control[3]) + eps)
/// control f64 [4] on the device: {lr, gradient scale (clipping), 1 - b1^t, 1 - b2^t}.
struct AdamW {
  Tensor param, m, v;
  ConstTensor grad, control;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
};
void run_cpu(Ctx&, const AdamW&);
void run_cuda(Ctx&, const AdamW&);

inline void adamw(Ctx& ctx, const AdamW& a) {
  check(a.param.numel() == a.grad.numel() && a.m.numel() == a.grad.numel() && a.v.numel() == a.grad.numel(),
        "adamw: param, m, v and grad have the same length");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
