#include "tests/cuda/schedules.h"
#include "tests/kernels/noise_cases.h"

namespace qtrain::testing {
namespace {

TEST(CudaNoise, FollowsItsFormula) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  for (const DType d : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t width : {1, 6, 64, 260}) expect_noise_by_formula(ctx, d, width);
}

}  // namespace
}  // namespace qtrain::testing
