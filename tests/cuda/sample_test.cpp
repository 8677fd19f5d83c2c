#include "tests/cuda/schedules.h"
#include "tests/kernels/sample_cases.h"

namespace qtrain::testing {
namespace {

// Every weight and every sum is a whole number, so that nothing but the same token is right.
TEST(CudaSample, DrawsTheTokensOfTheProcessor) {
  for (const std::int64_t width : {1, 40, 1500}) {
    const SampleRows rows(width < 100 ? 12 : 2, width);
    for (const ops::SampleRule& rule : sample_rules()) {
      Ctx cpu({}, MatmulPrecision::storage, 1);
      const std::vector<std::int32_t> want = rows.drawn(cpu, rule);
      const OnDevice device;
      Ctx ctx(kCuda, MatmulPrecision::storage, 1);
      EXPECT_EQ(rows.drawn(ctx, rule), want) << width << " logits, temperature " << rule.temperature << ", top_k "
                                             << rule.top_k << ", top_p " << rule.top_p;
    }
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
