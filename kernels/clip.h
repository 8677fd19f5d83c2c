#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Computes the factor that gradients are multiplied by before an update. All tensors are f64 on the device: sums [2] =
/// {loss, sum of squares of all gradients}, limits [2] = {max_norm, loss_scale}.
///   norm = sqrt(squares) / loss_scale
///   factor [2] = {min(1, max_norm / (norm + 1e-6)) / loss_scale, 1 if loss and squares are finite, else 0}
/// as torch.nn.utils.clip_grad_norm_ after unscaling; max_norm 0 means no limit.
struct Clip {
  Tensor factor;
  ConstTensor sums, limits;
};
void run_cpu(Ctx&, const Clip&);
void run_cuda(Ctx&, const Clip&);

inline void clip(Ctx& ctx, const Clip& a) {
  check(a.factor.numel() == 2 && a.sums.numel() == 2 && a.limits.numel() == 2, "clip: all tensors have two elements");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
