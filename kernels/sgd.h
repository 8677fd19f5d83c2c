#pragma once
#include "kernels/weight_copy.h"

namespace qtrain::ops {

enum class Nesterov : std::uint8_t { no, yes };

/// One step of stochastic gradient descent as torch.optim.SGD, all tensors [n] in f32 (or all f64):
///   g = grad * factor[0] + decay * param
///   with `momentum_buffer`: b = momentum b + hyperparameters[1] g; g = nesterov ? g + momentum b : b
///   param -= lr g
/// On the device: hyperparameters f64 = {lr, 1 - dampening, or 1 in the first step}; factor f64 [2] from Clip. Nothing
/// changes if factor[1] is 0. `copy`, if given, is a 16-bit copy of param that is written in the same pass.
struct Sgd {
  Tensor param, momentum_buffer = {};
  ConstTensor grad, hyperparameters, factor;
  double momentum = 0, decay = 0;
  Nesterov nesterov = Nesterov::no;
  Tensor copy = {};
};
void run_cpu(Ctx&, const Sgd&);
void run_cuda(Ctx&, const Sgd&);

inline void sgd(Ctx& ctx, const Sgd& a) {
  check(a.param.numel() == a.grad.numel() && (!a.momentum_buffer || a.momentum_buffer.numel() == a.grad.numel()),
        "sgd: param, momentum and grad have the same length");
  dispatch_with_copy(ctx, a);
}

}  // namespace qtrain::ops
