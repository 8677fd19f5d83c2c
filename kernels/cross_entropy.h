#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

inline constexpr std::int32_t kNoClass = -1;

enum class Gradient : std::uint8_t { none, in_place };

/// loss[i] = logsumexp(logits[i]) - logits[i][targets[i]] for logits [n, V], targets i32 [n], loss f32 [n] (f64 with
/// f64). With Gradient::in_place the logits become scale[0] * (softmax - onehot); scale: one f64 on the device. A row
/// whose target is kNoClass has loss 0 and gradient 0.
struct CrossEntropy {
  Tensor logits, loss;
  ConstTensor targets;
  Gradient gradient = Gradient::none;
  ConstTensor scale = {};
};
void run_cpu(Ctx&, const CrossEntropy&);
void run_cuda(Ctx&, const CrossEntropy&);

inline void cross_entropy(Ctx& ctx, const CrossEntropy& a) {
  check(a.logits.shape.rank == 2 && a.targets.numel() == a.logits.shape[0] && a.loss.numel() == a.logits.shape[0],
        "cross_entropy: one target and one loss per row of logits");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
