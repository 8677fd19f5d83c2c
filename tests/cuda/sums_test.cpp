// Sums of whole tensors on the CUDA device, with values for which every summation order gives different bits.
#include "kernels/reduce.h"
#include "tests/cuda/schedules.h"

namespace qtrain::testing {
namespace {

/// Values of such different magnitudes that f64 sums are rounded.
Array uneven(DType d, std::int64_t n) {
  Array a = irregular(d, {n}, 3);
  for (std::int64_t i = 0; i < n; ++i) a.set(i, std::ldexp(a.get(i), static_cast<int>(i * 7 % 21) - 10));
  return a;
}

struct SumOf {
  double value = 0, square = 0, magnitude = 0;
};
SumOf sum_of(const std::vector<double>& values) {
  SumOf s;
  for (const double v : values) s = {s.value + v, s.square + v * v, s.magnitude + std::abs(v)};
  return s;
}

class CudaSums : public ::testing::Test {
 protected:
  struct Results {
    Array value, square;
  };
  /// Stores the sum, or adds it to the previous value.
  Results on_cuda(const Array& x, Sink::Mode mode) {
    const OnDevice device;
    Results r{scalars({0.5}), scalars({0.25})};
    Array in = x;
    ops::sum(ctx_, {.out = {r.value.tensor(), mode}, .x = in});
    ops::sum_squares(ctx_, {.out = {r.square.tensor(), mode}, .x = in});
    ctx_.synchronize();
    for (const Array* a : {&r.value, &r.square}) a->bytes();
    return r;
  }

  Ctx ctx_{kCuda, MatmulPrecision::storage, 1};
};

// A rank that has a part of a tensor gets the same result as one that has all of it.
TEST_F(CudaSums, OfSegmentsAreTheSameInAPartOfTheTensor) {
  constexpr std::int64_t kSegment = 1024, kBegin = 2 * kSegment, kEnd = 5 * kSegment + 300;
  for (const DType d : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    Array x = d == DType::f16 ? random(d, {kEnd}, 3) : uneven(d, kEnd), all = random(DType::f64, {6}, 1),
          part = random(DType::f64, {4}, 2);
    {
      const OnDevice device;
      const Tensor whole = x.tensor();
      ops::segment_squares(ctx_, {.out = all.tensor(), .x = whole, .segment = kSegment});
      ops::segment_squares(ctx_, {.out = part.tensor(), .x = whole.slice(kBegin, kEnd - kBegin), .segment = kSegment});
      ctx_.synchronize();
      for (const Array* a : {&x, &all, &part}) a->bytes();
    }
    for (std::int64_t s = 0; s < 6; ++s) {
      double want = 0;
      for (std::int64_t i = s * kSegment; i < std::min(kEnd, (s + 1) * kSegment); ++i) want += x.get(i) * x.get(i);
      EXPECT_NEAR(all.get(s), want, 1e-12 * want) << name_of(d) << " segment " << s;
    }
    for (std::int64_t s = 0; s < 4; ++s) EXPECT_EQ(part.get(s), all.get(s + 2)) << name_of(d) << " segment " << s + 2;
  }
}

// Sizes around the limits of one thread's share, one block's, and all blocks' together.
constexpr std::int64_t kOfBlock = 4096, kOfAllBlocks = 1024 * kOfBlock;

TEST_F(CudaSums, TakeEachElementOnce) {
  for (const DType d : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{255}, std::int64_t{257}, kOfBlock - 1, kOfBlock + 1,
                                 2 * kOfBlock + 300, kOfAllBlocks + 1}) {
      if (n > kOfAllBlocks && (d != DType::f32 || cuda_info().emulated)) continue;  // takes seconds under the harness
      const Array x = d == DType::f16 ? random(d, {n}, 3) : uneven(d, n);
      const SumOf want = sum_of(x.values());
      const double rounding = 1e-15 * std::sqrt(static_cast<double>(n)) + 1e-15;
      for (const Sink::Mode mode : {Sink::Mode::store, Sink::Mode::accumulate}) {
        const double before = mode == Sink::Mode::accumulate ? 1 : 0;
        const Results got = on_cuda(x, mode);
        EXPECT_NEAR(got.value.get(0), 0.5 * before + want.value, rounding * want.magnitude) << name_of(d) << " " << n;
        EXPECT_NEAR(got.square.get(0), 0.25 * before + want.square, rounding * want.square) << name_of(d) << " " << n;
      }
    }
}

TEST_F(CudaSums, LeaveAloneWhatNobodyWants) {
  const Results got = on_cuda(uneven(DType::f32, 300), Sink::Mode::discard);
  EXPECT_EQ(got.value.get(0), 0.5);
  EXPECT_EQ(got.square.get(0), 0.25);
}

TEST_F(CudaSums, HaveTheSameBitsInEveryOrder) {
  for (const DType d : {DType::f64, DType::f32}) {
    const Array x = uneven(d, 3 * kOfBlock + 77);
    std::vector<double> values = x.values();
    const SumOf forward = sum_of(values);
    std::reverse(values.begin(), values.end());
    ASSERT_NE(forward.value, sum_of(values).value) << "exact in any order";
    ASSERT_NE(forward.square, sum_of(values).square) << "exact in any order";
    const Results want = on_cuda(x, Sink::Mode::store);
    for_each_schedule([&] {
      const Results got = on_cuda(x, Sink::Mode::store);
      EXPECT_EQ(got.value.bytes(), want.value.bytes()) << name_of(d);
      EXPECT_EQ(got.square.bytes(), want.square.bytes()) << name_of(d);
    });
  }
}

}  // namespace
}  // namespace qtrain::testing
