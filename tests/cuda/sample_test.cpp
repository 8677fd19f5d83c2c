#include <gmock/gmock.h>

#include <limits>

#include "tests/cuda/schedules.h"
#include "tests/kernels/sample_cases.h"

namespace qtrain::testing {
namespace {

// Every weight and every sum is an integer, so the token must be exactly the same.
TEST(CudaSample, DrawsTheTokensOfTheProcessor) {
  for (const auto& [width, candidates] : {std::pair<std::int64_t, std::int64_t>{1, 0}, {40, 0}, {1500, 0}, {40, 9}}) {
    const SampleRows rows(width < 100 ? 12 : 2, width);
    for (const ops::SampleRule& rule : sample_rules()) {
      Ctx cpu({}, MatmulPrecision::storage, 1);
      const std::vector<std::int32_t> want = rows.drawn(cpu, rule, candidates);
      const OnDevice device;
      Ctx ctx(kCuda, MatmulPrecision::storage, 1);
      EXPECT_EQ(rows.drawn(ctx, rule, candidates), want)
          << candidates << " of " << width << " logits, temperature " << rule.temperature << ", top_k " << rule.top_k
          << ", top_p " << rule.top_p;
    }
  }
}

TEST(CudaSample, TakesALogitThatIsNotFinite) {
  SampleRows rows(4, 40);
  rows.logits.set(0 * 40 + 17, std::numeric_limits<double>::infinity());
  rows.logits.set(1 * 40 + 5, std::numeric_limits<double>::quiet_NaN());
  for (std::int64_t i = 0; i < 40; ++i) rows.logits.set(2 * 40 + i, -std::numeric_limits<double>::infinity());
  for (const ops::SampleRule& rule : sample_rules()) {
    Ctx cpu({}, MatmulPrecision::storage, 1);
    const std::vector<std::int32_t> want = rows.drawn(cpu, rule);
    EXPECT_EQ(want[0], 17);
    for (const std::int32_t token : want) EXPECT_THAT(token, ::testing::AllOf(::testing::Ge(0), ::testing::Lt(40)));
    const OnDevice device;
    Ctx ctx(kCuda, MatmulPrecision::storage, 1);
    EXPECT_EQ(rows.drawn(ctx, rule), want);
  }
}

TEST(CudaSample, DrawsTheSameInEveryOrder) {
  const SampleRows rows(3, 40);
  Ctx cpu({}, MatmulPrecision::storage, 1);
  const ops::SampleRule rule = sample_rules().back();
  const std::vector<std::int32_t> want = rows.drawn(cpu, rule);
  for_each_schedule([&] {
    const OnDevice device;
    Ctx ctx(kCuda, MatmulPrecision::storage, 1);
    EXPECT_EQ(rows.drawn(ctx, rule), want);
  });
}

}  // namespace
}  // namespace qtrain::testing
