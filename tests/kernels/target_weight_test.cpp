#include "tests/kernels/each_type.h"
#include "tests/kernels/target_weight_cases.h"

namespace qtrain::testing {
namespace {

TEST(TargetWeight, IsTheProbabilityOfTheTarget) {
  in_each_type({DType::f64, DType::f32, DType::bf16}, weights_targets_by_probability);
}

TEST(TargetWeight, OfNoProbabilityMakesTheLossZero) {
  in_each_type({DType::f64, DType::f32, DType::bf16}, ignores_targets_of_no_probability);
}

TEST(TargetWeight, IsOneIfLabelsAreSmoothed) {
  Ctx ctx;
  Array logits(DType::f32, {1, 4}), loss(DType::f32, {1}), targets = integers({1});
  const auto run = [&](const ops::TargetLoss& form) {
    ops::cross_entropy(ctx, {.logits = logits, .loss = loss, .targets = targets, .form = form});
  };
  EXPECT_NO_THROW(run({.smoothing = 0.5}));
  EXPECT_THROW(run({.smoothing = 1}), Error);
  EXPECT_THROW(run({.smoothing = -0.1}), Error);
  EXPECT_THROW(run({.weight = ops::TargetWeight::probability, .smoothing = 0.1}), Error);
}

}  // namespace
}  // namespace qtrain::testing
