#include "model/rope_tables.h"

#include "tests/cuda/schedules.h"

namespace qtrain::testing {
namespace {

// Tables are copied to a device in chunks of 2^20 elements.
TEST(CudaRopeTables, AreThoseOfTheProcessorInEveryChunk) {
  constexpr std::int64_t kPositions = 21'000, kHalf = 101;
  RopeFrequencies f{.inv_freq = {}, .attention_factor = 1.25};
  for (std::int64_t i = 0; i < kHalf; ++i) f.inv_freq.push_back(std::pow(1e4, -static_cast<double>(i) / kHalf));
  const auto filled = [&](Device device) {
    Ctx ctx(device, MatmulPrecision::storage, 1);
    Array cos(DType::f32, {kPositions, kHalf}), sin(DType::f32, {kPositions, kHalf});
    fill_rope_tables(ctx, f, {cos, sin});
    ctx.synchronize();
    return std::pair(cos.bytes(), sin.bytes());
  };
  const auto want = filled({});
  const OnDevice device;
  EXPECT_TRUE(filled(kCuda) == want);
}

}  // namespace
}  // namespace qtrain::testing
