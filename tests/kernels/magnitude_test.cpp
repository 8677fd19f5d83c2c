#include "tests/kernels/row_norm_cases.h"

namespace qtrain::testing {
namespace {

TEST(RowNorms, AreThoseOfTheSumThatIsNotWrittenDown) {
  for (const RowNormCase& c : kRowNormCases)
    for (const auto& [weights, factors, tolerance] :
         {std::tuple{DType::f64, DType::f64, 1e-14}, {DType::f32, DType::f32, 1e-6}, {DType::bf16, DType::f32, 1e-6}}) {
      Ctx one({}, MatmulPrecision::storage, 1), three({}, MatmulPrecision::storage, 3);
      const Array norms = c.measured(one, weights, factors);
      const std::vector<double> want = c.formula(weights);
      for (std::int64_t row = 0; row < c.out; ++row) {
        const double norm = want[static_cast<std::size_t>(row)];
        ASSERT_NEAR(norms.get(row), norm, tolerance * norm) << name_of(weights) << " " << c.out << " x " << c.in;
      }
      EXPECT_EQ(c.measured(three, weights, factors).bytes(), norms.bytes());
    }
}

}  // namespace
}  // namespace qtrain::testing
