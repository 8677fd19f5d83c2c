#pragma once
#include "kernels/dispatch.h"
#include "kernels/sgd.h"

/// The steps of Muon (Jordan et al. 2024, as torch.optim.Muon) between its GEMMs. factor f64 [2] on the device from
/// Clip: if factor[1] is 0, neither momentum nor param changes.
namespace qtrain::ops {

/// g = grad * factor[0]; b = b + (1 - momentum) (g - b); y = nesterov ? g + momentum (b - g) : b, y bf16, the others
/// f32, all [n].
struct MuonMomentum {
  Tensor momentum_buffer, y;
  ConstTensor grad, factor;
  double momentum = 0.95;
  Nesterov nesterov = Nesterov::yes;
};
/// x = x / max(sqrt(squares), eps), the norm rounded to bf16. x bf16 [n]; squares f64 [1] on the device.
struct MuonNormalize {
  Tensor x;
  ConstTensor squares;
  double eps = 1e-7;
};
/// y f32 [n] = alpha * x, x bf16 [n].
struct ScaledCopy {
  Tensor y;
  ConstTensor x;
  double alpha = 1;
};
/// param = param (1 - lr * decay) - lr * scale * x; param f32 [n], x bf16 [n]. hyperparameters f64 on the device, lr
/// first.
struct MuonApply {
  Tensor param;
  ConstTensor x, hyperparameters, factor;
  double scale = 1, decay = 0;
};
void run_cpu(Ctx&, const MuonMomentum&);
void run_cuda(Ctx&, const MuonMomentum&);
void run_cpu(Ctx&, const MuonNormalize&);
void run_cuda(Ctx&, const MuonNormalize&);
void run_cpu(Ctx&, const ScaledCopy&);
void run_cuda(Ctx&, const ScaledCopy&);
void run_cpu(Ctx&, const MuonApply&);
void run_cuda(Ctx&, const MuonApply&);

inline void muon_momentum(Ctx& ctx, const MuonMomentum& a) {
  check(a.momentum_buffer.numel() == a.grad.numel() && a.y.numel() == a.grad.numel(), "muon_momentum: lengths differ");
  dispatch(ctx, a);
}
inline void muon_normalize(Ctx& ctx, const MuonNormalize& a) {
  dispatch(ctx, a);
}
inline void scaled_copy(Ctx& ctx, const ScaledCopy& a) {
  check(a.y.numel() == a.x.numel(), "scaled_copy: lengths differ");
  dispatch(ctx, a);
}
inline void muon_apply(Ctx& ctx, const MuonApply& a) {
  check(a.param.numel() == a.x.numel(), "muon_apply: lengths differ");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
