#include "kernels/noise.h"

#include <cmath>

#include "core/rng.h"
#include "tests/kernels/noise_cases.h"

namespace qtrain::testing {
namespace {

class NoiseOfRows : public ::testing::TestWithParam<DType> {};

TEST_P(NoiseOfRows, FollowsItsFormula) {
  Ctx ctx({}, MatmulPrecision::storage, 3);
  for (const std::int64_t width : {1, 7, 64, 260}) expect_noise_by_formula(ctx, GetParam(), width);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, NoiseOfRows, ::testing::Values(DType::f64, DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Mean, variance and range of a uniform distribution, and no correlation between neighbors in a row or between rows.
TEST(Noise, IsUniformAndIndependent) {
  Ctx ctx({}, MatmulPrecision::storage, 2);
  constexpr std::int64_t kRows = 400, kWidth = 500, kAll = kRows * kWidth;
  constexpr double kMagnitude = 0.5;
  NoisyRows in(kRows, kMagnitude);
  Array y(DType::f32, {kRows, kWidth});
  ops::add_noise(ctx, {.y = y, .keys = in.keys, .magnitudes = in.magnitudes});
  double sum = 0, squares = 0, beside = 0, below = 0, least = 0, most = 0;
  std::vector<std::int64_t> bins(16);
  for (std::int64_t i = 0; i < kAll; ++i) {
    const double x = y.get(i);
    sum += x, squares += x * x;
    if (i % kWidth + 1 < kWidth) beside += x * y.get(i + 1);
    if (i + kWidth < kAll) below += x * y.get(i + kWidth);
    least = std::min(least, x), most = std::max(most, x);
    ++bins.at(static_cast<std::size_t>((x + kMagnitude) / (2 * kMagnitude) * 16));
  }
  constexpr double kVariance = kMagnitude * kMagnitude / 3, kDeviations = 4;
  const double n = kAll, of_products = kVariance / std::sqrt(n);
  EXPECT_NEAR(sum / n, 0, kDeviations * std::sqrt(kVariance / n));
  EXPECT_NEAR(squares / n, kVariance, kDeviations * kVariance * std::sqrt(0.8 / n));
  EXPECT_NEAR(beside / n, 0, kDeviations * of_products);
  EXPECT_NEAR(below / n, 0, kDeviations * of_products);
  EXPECT_GE(least, -kMagnitude);
  EXPECT_LT(most, kMagnitude);
  EXPECT_LT(least, -0.9999 * kMagnitude);
  EXPECT_GT(most, 0.9999 * kMagnitude);
  for (const std::int64_t count : bins)
    EXPECT_NEAR(static_cast<double>(count), n / 16, kDeviations * std::sqrt(n / 16)) << "a sixteenth of the range";
}

}  // namespace
}  // namespace qtrain::testing
