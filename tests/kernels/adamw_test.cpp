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
  Array hyperparameters = scalars({kRate, 1 - std::pow(kBeta1, kStep), 1 - std::pow(kBeta2, kStep)});
  Array factor = scalars({kClip, applied});
  ops::adamw(ctx, {.param = s.param,
                   .m = s.m,
                   .v = s.v,
                   .grad = s.grad,
                   .hyperparameters = hyperparameters,
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

State as_bf16(State s) {
  for (Array* a : {&s.param, &s.m, &s.v}) *a = a->as(DType::bf16);
  return s;
}
void step_rounded(Ctx& ctx, State& s, double t, std::int64_t first = 0) {
  Array hyperparameters = scalars({kRate, 1 - std::pow(kBeta1, kStep), 1 - std::pow(kBeta2, kStep), t});
  Array factor = scalars({kClip, 1});
  ops::adamw_bf16(ctx, {.param = s.param,
                        .m = s.m,
                        .v = s.v,
                        .grad = s.grad,
                        .hyperparameters = hyperparameters,
                        .factor = factor,
                        .seed = 7,
                        .stream = 9,
                        .first = first,
                        .beta1 = kBeta1,
                        .beta2 = kBeta2,
                        .eps = kEps,
                        .decay = kDecay});
}

TEST(AdamWBf16, RoundsUpOrDownAndIsRightOnAverage) {
  constexpr std::int64_t n = 1003;
  constexpr int kTimes = 400;
  Ctx ctx;
  const State start = as_bf16(state_of(DType::f32, n));
  State exact = start;
  for (Array* a : {&exact.param, &exact.m, &exact.v}) *a = a->as(DType::f32);
  step(ctx, exact);
  std::vector<double> mean(n);
  for (int t = 0; t < kTimes; ++t) {
    State s = start;
    step_rounded(ctx, s, t);
    for (std::int64_t i = 0; i < n; ++i) {
      const double p = exact.param.get(i), v = exact.v.get(i);
      ASSERT_LT(std::abs(s.param.get(i) - p), std::abs(p) * 0x1p-7 + 1e-30) << i;
      ASSERT_LT(std::abs(s.v.get(i) - v), v * 0x1p-7 + 1e-30) << i;
      ASSERT_EQ(s.m.get(i), static_cast<double>(Bf16(static_cast<float>(exact.m.get(i)))));
      mean[static_cast<std::size_t>(i)] += s.param.get(i) / kTimes;
    }
  }
  // Each value is uniform within one step of bf16, which is at most 2^-7 of it: the mean of 400 is off by 0.5 / 20 of a
  // step.
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double off =
        (mean[static_cast<std::size_t>(i)] - exact.param.get(i)) / (std::abs(exact.param.get(i)) * 0x1p-7);
    EXPECT_LT(std::abs(off), 5 * 0.5 / 20) << i;
    sum += off;
  }
  EXPECT_LT(std::abs(sum / n), 5 * 0.5 / 20 / std::sqrt(1.0 * n));
}

TEST(AdamWBf16, PartsHaveTheBitsOfTheWhole) {
  constexpr std::int64_t n = 4000, kFirst = 1024;
  Ctx ctx;
  State whole = as_bf16(state_of(DType::f32, n)), part = whole;
  for (Array State::*member : {&State::param, &State::m, &State::v, &State::grad}) {
    Array tail((part.*member).dtype(), {n - kFirst});
    for (std::int64_t i = kFirst; i < n; ++i) tail.set(i - kFirst, (part.*member).get(i));
    part.*member = tail;
  }
  step_rounded(ctx, whole, 3);
  step_rounded(ctx, part, 3, kFirst);
  for (std::int64_t i = kFirst; i < n; ++i) {
    ASSERT_EQ(part.param.get(i - kFirst), whole.param.get(i)) << i;
    ASSERT_EQ(part.v.get(i - kFirst), whole.v.get(i)) << i;
  }
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
