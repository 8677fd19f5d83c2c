#pragma once
#include "kernels/code_table.h"
#include "kernels/weight_copy.h"

namespace qtrain::ops {

/// One Lion step (Chen et al. 2023, as bitsandbytes.optim.Lion), all tensors [n] in f32 (or all f64):
///   g = grad * factor[0]; param -= lr * decay * param; param -= lr * sign(b1 m + (1-b1) g); m = b2 m + (1-b2) g
/// On the device: hyperparameters f64, lr first; factor f64 [2] from Clip. Nothing changes if factor[1] is 0.
/// `copy`, if given, is a 16-bit copy of param that is written in the same pass.
struct Lion {
  Tensor param, m;
  ConstTensor grad, hyperparameters, factor;
  double beta1 = 0.9, beta2 = 0.999, decay = 0;
  Tensor copy = {};
};
/// Lion with the momentum in 8 bits.
struct Lion8bit {
  Tensor param;
  CodedState m;
  ConstTensor grad, hyperparameters, factor;
  double beta1 = 0.9, beta2 = 0.999, decay = 0;
  Tensor copy = {};
};
void run_cpu(Ctx&, const Lion&);
void run_cuda(Ctx&, const Lion&);
void run_cpu(Ctx&, const Lion8bit&);
void run_cuda(Ctx&, const Lion8bit&);

inline void lion(Ctx& ctx, const Lion& a) {
  check(a.param.numel() == a.grad.numel() && a.m.numel() == a.grad.numel(),
        "lion: param, m and grad have the same length");
  dispatch_with_copy(ctx, a);
}
inline void lion_8bit(Ctx& ctx, const Lion8bit& a) {
  check(a.param.numel() == a.grad.numel(), "lion_8bit: param and grad have the same length");
  check_coded(a.m, a.param.numel());
  dispatch_with_copy(ctx, a);
}

}  // namespace qtrain::ops
