#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

inline constexpr std::int32_t kNoClass = -1;

enum class Gradient : std::uint8_t { none, in_place };

enum class TargetWeight : std::uint8_t { one, probability };

/// The loss of a target with the log-probabilities l [V] of its row.
struct TargetLoss {
  /// probability: -p l[target] (Dynamic Fine-Tuning, Wu et al. 2025, arXiv:2508.05629), where p = exp(l[target]) is a
  /// constant for the gradient; one: -l[target].
  TargetWeight weight = TargetWeight::one;
  /// Label smoothing e in [0, 1), only with weights of one: -(1 - e) l[target] - e mean(l).
  double smoothing = 0;
};

/// loss[i] = -log softmax(z[i])[targets[i]], or as `form` says, for logits [n, V], targets i32 [n], loss f32 [n] (f64
/// with f64), where z = logit_scale * logits (Granite: 1 / logits_scaling), or with a softcap > 0
/// z = softcap * tanh(logit_scale * logits / softcap) (Gemma 2). With Gradient::in_place the logits are overwritten by
/// their gradient scale[0] * dloss/dz * dz/dlogits, where dloss/dz = softmax(z) - onehot for the plain loss; scale is
/// one f64 on the device. Otherwise they are unchanged. A row whose target is kNoClass has loss 0 and gradient 0.
struct CrossEntropy {
  Tensor logits, loss;
  ConstTensor targets;
  TargetLoss form = {};
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
  check(a.form.smoothing == 0 || (a.form.smoothing > 0 && a.form.smoothing < 1 && a.form.weight == TargetWeight::one),
        "cross_entropy: label smoothing is in [0, 1) and for weights of one");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
