#include "kernels/elementwise.h"

#include "tests/cuda/schedules.h"

namespace qtrain::testing {
namespace {

TEST(CudaElementwise, CapsLogitsAlsoInPlace) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  constexpr std::int64_t kLength = 4099;
  for (const DType d : {DType::f32, DType::bf16, DType::f16})
    for (const double cap : {0.0, 0.5, 30.0}) {
      const Array x = random(d, {kLength}, 1);
      Array y(d, {kLength}), in_place = x, input = x;
      ops::cap_logits(ctx, {.y = y, .x = input, .scale = 1.75, .softcap = cap});
      ops::cap_logits(ctx, {.y = in_place, .x = in_place, .scale = 1.75, .softcap = cap});
      ctx.synchronize();
      EXPECT_EQ(in_place.bytes(), y.bytes());
      // Rounding of the result and, with 16 bits, the absolute error of the fast tanh.
      const double relative = d == DType::f32 ? 1e-6 : d == DType::f16 ? 5e-4 : 4e-3;
      for (std::int64_t i = 0; i < kLength; ++i) {
        const double z = 1.75 * x.get(i), want = cap > 0 ? cap * std::tanh(z / cap) : z;
        ASSERT_NEAR(y.get(i), want, relative * std::abs(want) + (d == DType::f32 ? 0 : 4e-7 * cap)) << name_of(d) << i;
      }
    }
}

}  // namespace
}  // namespace qtrain::testing
