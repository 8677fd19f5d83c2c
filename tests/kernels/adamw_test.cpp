#include "kernels/adamw.h"

#include "kernels/clip.h"

#include "tests/kernels/support.h"

namespace qtrain {
namespace {

using testing::Array;
using testing::random;
using testing::scalars;

struct State {
  Array param, m, v, grad;
};
State state_of(DType d, std::int64_t n) {
  State s{random(d, {n}, 1), random(d, {n}, 2), random(d, {n}, 3), random(d, {n}, 4)};
  for (std::int64_t i = 0; i < n; ++i) s.v.set(i, s.v.get(i) * s.v.get(i));
  return s;
}

constexpr double kRate = 1e-2, kClip = 0.3, kDecay = 0.1, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-6;
constexpr int kStep = 3;

void step(Ctx& ctx, State& s, double applied = 1) {
  Array control = scalars({kRate, 1 - std::pow(kBeta1, kStep), 1 - std::pow(kBeta2, kStep)});
  Array factor = scalars({kClip, applied});
  ops::adamw(ctx, {.param = s.param,
                   .m = s.m,
                   .v = s.v,
                   .grad = s.grad,
                   .control = control,
                   .factor = factor,
                   .beta1 = kBeta1,
                   .beta2 = kBeta2,
                   .eps = kEps,
                   .decay = kDecay});
}

TEST(AdamW, IsTheFormula) {
  for (const DType d : {DType::f64, DType::f32})
    for (const std::int64_t n : {1, 9, 33333}) {
      Ctx ctx;
      const State before = state_of(d, n);
      State after = before;
      step(ctx, after);
      const double tolerance = d == DType::f64 ? 1e-13 : 1e-6;
      for (std::int64_t i = 0; i < n; ++i) {
        const double g = before.grad.get(i) * kClip, m = kBeta1 * before.m.get(i) + (1 - kBeta1) * g;
        const double v = kBeta2 * before.v.get(i) + (1 - kBeta2) * g * g;
        const double m_hat = m / (1 - std::pow(kBeta1, kStep)), v_hat = v / (1 - std::pow(kBeta2, kStep));
        const double param = before.param.get(i) * (1 - kRate * kDecay) - kRate * m_hat / (std::sqrt(v_hat) + kEps);
        ASSERT_NEAR(after.m.get(i), m, tolerance * (1 + std::abs(m)));
        ASSERT_NEAR(after.v.get(i), v, tolerance * (1 + v));
        // A tiny v makes a large step, whose rounding is relative to the step.
        ASSERT_NEAR(after.param.get(i), param, tolerance * (1 + std::abs(param))) << i;
      }
    }
}

TEST(AdamW, SameBitsForAnyNumberOfThreads) {
  Ctx one({}, MatmulPrecision::storage, 1), many({}, MatmulPrecision::storage, 3);
  State a = state_of(DType::f32, 50001), b = a;
  step(one, a);
  step(many, b);
  EXPECT_EQ(a.param.bytes(), b.param.bytes());
  EXPECT_EQ(a.v.bytes(), b.v.bytes());
}

TEST(AdamW, LeavesAStepOutThatIsNotApplied) {
  Ctx ctx;
  const State before = state_of(DType::f32, 100);
  State after = before;
  step(ctx, after, 0);
  EXPECT_EQ(after.param.bytes(), before.param.bytes());
  EXPECT_EQ(after.m.bytes(), before.m.bytes());
  EXPECT_EQ(after.v.bytes(), before.v.bytes());
}

std::vector<double> clipped(double loss, double squares, double max_norm, double loss_scale) {
  Ctx ctx;
  Array factor = scalars({-1, -1}), sums = scalars({loss, squares}), limits = scalars({max_norm, loss_scale});
  ops::clip(ctx, {.factor = factor, .sums = sums, .limits = limits});
  return factor.values();
}

TEST(Clip, ShortensOnlyWhatIsTooLongAndNeverWithoutALimit) {
  EXPECT_EQ(clipped(1, 0.25, 1, 1), (std::vector<double>{1, 1}));
  EXPECT_EQ(clipped(1, 1e60, 0, 1), (std::vector<double>{1, 1}));
  EXPECT_EQ(clipped(1, 16, 1, 1), (std::vector<double>{1 / (4 + 1e-6), 1}));
  EXPECT_EQ(clipped(1, 16, 1, 1024), (std::vector<double>{1.0 / 1024, 1}));
  EXPECT_EQ(clipped(1, 16 * 1024 * 1024, 1, 1024), (std::vector<double>{1 / (4 + 1e-6) / 1024, 1}));
}

TEST(Clip, AppliesFiniteStepsOnly) {
  const double inf = HUGE_VAL, nan = std::nan("");
  for (const double bad : {inf, -inf, nan}) EXPECT_EQ(clipped(bad, 1, 1, 1)[1], 0);
  for (const double bad : {inf, nan}) EXPECT_EQ(clipped(1, bad, 1, 1)[1], 0);
}

}  // namespace
}  // namespace qtrain
