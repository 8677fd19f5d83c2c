#pragma once
#include <cmath>
#include <limits>

#include "kernels/cross_entropy.h"
#include "tests/kernels/support.h"

namespace qtrain::testing {

/// Loss and gradient [n, V] of rows of logits.
struct TargetRows {
  Array loss, gradient;

  TargetRows(Ctx& ctx, const Array& logits, ops::TargetWeight weight, double softcap)
      : loss(logits.dtype() == DType::f64 ? DType::f64 : DType::f32, {logits.shape()[0]}), gradient(logits) {
    std::vector<std::int32_t> ids;
    for (std::int64_t r = 0; r < logits.shape()[0]; ++r)
      ids.push_back(r == 2 ? ops::kNoClass : static_cast<std::int32_t>(r * 7919 % logits.shape()[1]));
    Array targets = integers(ids), scale = scalars({0.5});
    ops::cross_entropy(ctx, {.logits = gradient,
                             .loss = loss,
                             .targets = targets,
                             .form = {.weight = weight},
                             .gradient = ops::Gradient::in_place,
                             .scale = scale,
                             .softcap = softcap});
    ctx.synchronize();
  }
};

/// Dynamic Fine-Tuning multiplies the loss of each target and its gradient by the target's probability, which is
/// e^-loss. Gradients are rounded once more than the plain ones that they are compared with.
inline void weights_targets_by_probability(Ctx& ctx, DType d) {
  const double unit = d == DType::f64 ? 1e-14 : d == DType::f32 ? 2e-6 : d == DType::f16 ? 1e-3 : 8e-3;
  for (const auto& [shape, softcap] : {std::pair<Shape, double>{{5, 3}, 0}, {{6, 2056}, 0}, {{4, 131}, 1.5}}) {
    Array logits = random(d, shape, 5);
    const TargetRows plain(ctx, logits, ops::TargetWeight::one, softcap),
        weighted(ctx, logits, ops::TargetWeight::probability, softcap);
    for (std::int64_t r = 0; r < shape[0]; ++r) {
      const double p = std::exp(-plain.loss.get(r));
      EXPECT_NEAR(weighted.loss.get(r), p * plain.loss.get(r), 2e-6) << r;
      EXPECT_EQ(weighted.loss.get(r) == 0, r == 2);
      for (std::int64_t c = 0; c < shape[1]; ++c) {
        const double expected = p * plain.gradient.get(r * shape[1] + c);
        ASSERT_NEAR(weighted.gradient.get(r * shape[1] + c), expected, unit * std::abs(expected) + 1e-7)
            << r << " " << c;
      }
    }
  }
}

/// A target with a probability of 0 contributes nothing, even if its loss is infinite.
inline void ignores_targets_of_no_probability(Ctx& ctx, DType d) {
  for (const std::int64_t width : {5, 2056}) {
    Array logits = random(d, {2, width}, 6);
    logits.set(0, -std::numeric_limits<double>::infinity());  // the target of the first row
    const TargetRows weighted(ctx, logits, ops::TargetWeight::probability, 0);
    EXPECT_EQ(weighted.loss.get(0), 0) << width;
    EXPECT_GT(weighted.loss.get(1), 0) << width;
    for (std::int64_t c = 0; c < width; ++c) ASSERT_EQ(weighted.gradient.get(c), 0) << width << " " << c;
  }
}

}  // namespace qtrain::testing
