#pragma once
#include "kernels/code_table.h"
#include "kernels/weight_copy.h"

namespace qtrain::ops {

/// One AdamW step (Loshchilov and Hutter 2019, as torch.optim.AdamW), all tensors [n] in f32 (or all f64):
///   g = grad * factor[0]; param -= lr * decay * param; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
///   param -= lr / hyperparameters[1] * m / (sqrt(v) / sqrt(hyperparameters[2]) + eps)
/// On the device: hyperparameters f64 [3] = {lr, 1 - b1^t, 1 - b2^t}; factor f64 [2] from Clip. Nothing changes if
/// factor[1] is 0. `copy`, if given, is a 16-bit copy of param that is written in the same pass.
struct AdamW {
  Tensor param, m, v;
  ConstTensor grad, hyperparameters, factor;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  Tensor copy = {};
};
/// AdamW with both moments in 8 bits (Dettmers et al. 2022, as bitsandbytes.optim.AdamW8bit): the moments are decoded,
/// the step is computed in f32, and each block of both moments is encoded again.
struct AdamW8bit {
  Tensor param;
  CodedState m, v;
  ConstTensor grad, hyperparameters, factor;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  Tensor copy = {};
};
/// AdamW where param, m and v are bf16, without a float32 master copy. m is rounded to nearest; param and v are rounded
/// stochastically, so that they are unbiased. grad is f32. Element i uses word (i % 4) of philox(seed, stream,
/// hyperparameters[3] * 2^40 + (first + i) / 4): its lower half rounds param, its upper half v. hyperparameters f64 [4]
/// ends with t; first is a multiple of 64.
struct AdamWBf16 {
  Tensor param, m, v;
  ConstTensor grad, hyperparameters, factor;
  std::uint64_t seed = 0, stream = 0;
  std::int64_t first = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
};
void run_cpu(Ctx&, const AdamW&);
void run_cuda(Ctx&, const AdamW&);
void run_cpu(Ctx&, const AdamW8bit&);
void run_cuda(Ctx&, const AdamW8bit&);
void run_cpu(Ctx&, const AdamWBf16&);
void run_cuda(Ctx&, const AdamWBf16&);

/// The Philox counter of the random words of update t, for elements from `first` on.
constexpr std::uint64_t rounding_counter(double t, std::int64_t first) {
  return (static_cast<std::uint64_t>(t) << 40) + static_cast<std::uint64_t>(first / 4);
}

inline void adamw(Ctx& ctx, const AdamW& a) {
  check(a.param.numel() == a.grad.numel() && a.m.numel() == a.grad.numel() && a.v.numel() == a.grad.numel(),
        "adamw: param, m, v and grad have the same length");
  dispatch_with_copy(ctx, a);
}
inline void adamw_bf16(Ctx& ctx, const AdamWBf16& a) {
  const std::int64_t n = a.param.numel();
  check(a.grad.numel() == n && a.m.numel() == n && a.v.numel() == n, "adamw_bf16: all tensors have the same length");
  check(a.first % 64 == 0 && a.hyperparameters.numel() == 4,
        "adamw_bf16: first is a multiple of 64, hyperparameters are four numbers");
  dispatch(ctx, a);
}
inline void adamw_8bit(Ctx& ctx, const AdamW8bit& a) {
  check(a.param.numel() == a.grad.numel(), "adamw_8bit: param and grad have the same length");
  check_coded(a.m, a.param.numel());
  check_coded(a.v, a.param.numel());
  dispatch_with_copy(ctx, a);
}

}  // namespace qtrain::ops
