#include "tests/cuda/schedules.h"
#include "tests/kernels/row_norm_cases.h"

namespace qtrain::testing {
namespace {

Array measured_on_cuda(const RowNormCase& c, DType weights) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  Array norms = c.measured(ctx, weights, DType::f32);
  ctx.synchronize();
  norms.bytes();
  return norms;
}

TEST(CudaRowNorms, FollowDoubleInEveryOrder) {
  for (const RowNormCase& c : kRowNormCases)
    for (const DType weights : {DType::f32, DType::bf16, DType::f16}) {
      const Array norms = measured_on_cuda(c, weights);
      const std::vector<double> want = c.formula(weights);
      for (std::int64_t row = 0; row < c.out; ++row) {
        const double length = want[static_cast<std::size_t>(row)];
        ASSERT_NEAR(norms.get(row), length, 2e-6 * length) << name_of(weights) << " " << c.out << " x " << c.in;
      }
    }
  const RowNormCase& c = kRowNormCases[1];
  const Array want = measured_on_cuda(c, DType::bf16);
  for_each_schedule([&] { EXPECT_EQ(measured_on_cuda(c, DType::bf16).bytes(), want.bytes()); });
}

}  // namespace
}  // namespace qtrain::testing
