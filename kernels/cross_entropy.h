#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

inline constexpr std::int32_t kNoClass = -1;

enum class Gradient : std::uint8_t { none, in_place };

/// loss[i] = logsumexp(z[i]) - z[i][targets[i]] for logits [n, V], targets i32 [n], loss f32 [n] (f64 with f64), where
/// z = logit_scale * logits (Granite: 1 / logits_scaling), or with a softcap > 0
/// z = softcap * tanh(logit_scale * logits / softcap) (Gemma 2). With Gradient::in_place the logits are overwritten by
/// their gradient scale[0] * (softmax(z) - onehot) * dz/dlogits; scale is one f64 on the device. Otherwise they are
/// unchanged. A row whose target is kNoClass has loss 0 and gradient 0.
struct CrossEntropy {
  Tensor logits, loss;
  ConstTensor targets;
  Gradient gradient = Gradient::none;
  ConstTensor scale = {};
  double logit_scale = 1, softcap = 0;
};
void run_cpu(Ctx&, const CrossEntropy&);
void run_cuda(Ctx&, const CrossEntropy&);

inline void cross_entropy(Ctx& ctx, const CrossEntropy& a) {
  check(a.logits.shape.rank == 2 && a.targets.numel() == a.logits.shape[0] && a.loss.numel() == a.logits.shape[0],
        "cross_entropy: one target and one loss per row of logits");
  check(a.softcap >= 0, "cross_entropy: a softcap is positive, or 0 for none");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
