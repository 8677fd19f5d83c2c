#include "tests/cuda/schedules.h"
#include "tests/kernels/op_run.h"
#include "tests/kernels/quantize_cases.h"

/// Block-quantized tensors on the CUDA device have the bits of those on the processor.
namespace qtrain::testing {
namespace {

template <class Run>
void expect_bits_of_the_processor(const std::string& what, const Run& run) {
  Ctx cpu({}, MatmulPrecision::storage, 1);
  const ByteResults want = run(cpu);
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  const ByteResults got = run(ctx);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(got[i].second, want[i].second) << what << ": " << want[i].first;
}

TEST(CudaQuantize, FourBits) {
  for (const QuantizeCase& c : quantize_cases())
    expect_bits_of_the_processor(describe(c), [&](Ctx& ctx) { return four_bit_results(ctx, c); });
}

TEST(CudaQuantize, EightBits) {
  for (const std::int64_t n : {1, 256, 1037})
    for (const int blocksize : {64, 256})
      expect_bits_of_the_processor(std::to_string(n), [&](Ctx& ctx) { return eight_bit_results(ctx, n, blocksize); });
}

TEST(CudaQuantize, Rows) {
  for (const Shape& shape : {Shape(3, 37), Shape(5, 64)})
    expect_bits_of_the_processor(to_string(shape), [&](Ctx& ctx) { return row_results(ctx, shape); });
}

TEST(CudaQuantize, SameBitsInEveryOrder) {
  const QuantizeCase c{DType::bf16, 3001, FourBit::nf4, 32};
  for_each_schedule(
      [&] { expect_bits_of_the_processor(describe(c), [&](Ctx& ctx) { return four_bit_results(ctx, c); }); });
}

TEST(CudaGemm4, MultipliesByTheDequantizedMatrix) {
  for (Gemm4Case g : gemm4_cases())
    for (const bool half : {false, true}) {
      if (half && g.dtype == DType::f32) continue;
      if (half) {
        g.result = g.result == g.dtype ? DType::f16 : g.result;
        g.dtype = DType::f16;
      }
      const OnDevice device;
      Ctx ctx(kCuda, MatmulPrecision::storage, 1);
      const auto [got, want] = gemm4_results(ctx, g);
      expect_close(got, want, tolerance_of(g.result), std::to_string(g.M) + " rows " + std::string(name_of(g.dtype)));
    }
}

TEST(CudaGemm4, SameBitsInEveryOrder) {
  const Gemm4Case g = gemm4_cases()[1];
  const OnDevice device;
  Ctx first(kCuda, MatmulPrecision::storage, 1);
  const std::vector<double> want = gemm4_results(first, g).first;
  for_each_schedule([&] {
    Ctx ctx(kCuda, MatmulPrecision::storage, 1);
    EXPECT_EQ(gemm4_results(ctx, g).first, want);
  });
}

}  // namespace
}  // namespace qtrain::testing
