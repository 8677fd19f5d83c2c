#include "tests/kernels/quantize_cases.h"

#include "tests/kernels/each_isa.h"
#include "tests/kernels/op_run.h"

/// Consistency of the ops on block-quantized tensors; tests/quant compares them with bitsandbytes.
namespace qtrain::testing {
namespace {

TEST(Quantize, SameBitsForAnyNumberOfThreads) {
  for (const QuantizeCase& c : quantize_cases()) {
    Ctx one({}, MatmulPrecision::storage, 1), many({}, MatmulPrecision::storage, 3);
    EXPECT_EQ(four_bit_results(one, c), four_bit_results(many, c)) << describe(c);
  }
}

TEST(Quantize, SameBitsOnNarrowUnits) {
  for (const QuantizeCase& c : quantize_cases()) {
    Ctx ctx({}, MatmulPrecision::storage, 1);
    const ByteResults widest = four_bit_results(ctx, c);
    ::setenv("QTRAIN_CPU_ISA", kCpuIsas[0], 1);
    const ByteResults narrow = four_bit_results(ctx, c);
    ::unsetenv("QTRAIN_CPU_ISA");
    EXPECT_EQ(narrow, widest) << describe(c);
  }
}

TEST(Quantize, RowsHaveTheSameBitsOnNarrowUnits) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const ByteResults widest = row_results(ctx, {7, 77});
  ::setenv("QTRAIN_CPU_ISA", kCpuIsas[0], 1);
  const ByteResults narrow = row_results(ctx, {7, 77});
  ::unsetenv("QTRAIN_CPU_ISA");
  EXPECT_EQ(narrow, widest);
}

TEST(Quantize, ErrorIsAtMostHalfAStep) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  for (const FourBit type : {FourBit::nf4, FourBit::fp4}) {
    const QuantizeCase c{DType::f32, 64 * 4 + 9, type};
    QuantizedArrays q(ctx, c);
    Array x = hard_values(c), y(DType::f32, {c.n});
    ops::dequantize4(ctx, {.y = y, .w = q.plain(c, {c.n})});
    const double widest = type == FourBit::nf4 ? 1 - 0.6961928 : 1.0 / 3;
    for (std::int64_t i = 0; i < c.n; ++i)
      ASSERT_LE(std::abs(y.get(i) - x.get(i)), 0.5001 * widest * q.absmax.get(i / 64)) << i;
  }
}

TEST(Gemm4, MultipliesByTheDequantizedMatrix) {
  Ctx ctx({}, MatmulPrecision::storage, 2);
  for (const Gemm4Case& g : gemm4_cases()) {
    const auto [got, want] = gemm4_results(ctx, g);
    expect_close(got, want, tolerance_of(g.result), std::to_string(g.M) + " rows");
  }
}

}  // namespace
}  // namespace qtrain::testing
