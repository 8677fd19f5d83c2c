#include "kernels/reduce.h"

#include "tests/kernels/support.h"

namespace qtrain {
namespace {

using testing::Array;
using testing::irregular;
using testing::random;
using testing::scalars;

TEST(ColumnSum, AddsRowsInEveryDtype) {
  Ctx ctx;
  for (const DType d : {DType::f64, DType::f32, DType::bf16})
    for (const auto& [rows, N] : {std::pair{1, 1}, {5, 3}, {1000, 77}, {3, 5000}}) {
      Array x = random(d, {rows, N}, 1), y = random(DType::f32, {N}, 2);
      const Array before = y;
      ops::column_sum(ctx, {.y = accumulate(y), .x = x});
      for (std::int64_t c = 0; c < N; ++c) {
        double want = before.get(c);
        for (std::int64_t r = 0; r < rows; ++r) want += x.get(r * N + c);
        ASSERT_NEAR(y.get(c), want, 1e-4) << name_of(d) << " " << rows << " x " << N;
      }
    }
}

TEST(Sums, AreDoubleAndInAFixedOrder) {
  for (const DType d : {DType::f64, DType::f32})
    for (const std::int64_t n : {1, 7, 16384, 100003}) {
      Array x = irregular(d, {n}, 3);
      double sum = 0, squares = 0;
      for (std::int64_t i = 0; i < n; ++i) sum += x.get(i), squares += x.get(i) * x.get(i);
      std::vector<std::vector<std::byte>> results;
      for (const int threads : {1, 2, 3, 5}) {
        Ctx ctx({}, MatmulPrecision::storage, threads);
        Array out = scalars({0.5}), out2 = scalars({99});
        ops::sum(ctx, {.out = accumulate(out), .x = x});
        ops::sum_squares(ctx, {.out = store(out2), .x = x});
        EXPECT_NEAR(out.get(0), sum + 0.5, 1e-12 * std::sqrt(squares * static_cast<double>(n)) + 1e-12);
        EXPECT_NEAR(out2.get(0), squares, 1e-12 * squares);
        for (const Array& result : {out, out2}) results.push_back(result.bytes());
        EXPECT_EQ(results[results.size() - 2], results[0]) << threads << " threads";
        EXPECT_EQ(results.back(), results[1]) << threads << " threads";
      }
    }
}

TEST(SegmentSquares, AreThoseOfTheSegmentsWhateverIsBesideThem) {
  Ctx ctx;
  constexpr std::int64_t kSegment = 64;
  for (const DType d : {DType::f64, DType::f32, DType::bf16})
    for (const std::int64_t n : {1, 64, 65, 1000}) {
      Array x = irregular(d, {n}, 3), all = random(DType::f64, {(n + kSegment - 1) / kSegment}, 1);
      ops::segment_squares(ctx, {.out = all, .x = x, .segment = kSegment});
      for (std::int64_t s = 0; s * kSegment < n; ++s) {
        double want = 0;
        for (std::int64_t i = s * kSegment; i < std::min(n, (s + 1) * kSegment); ++i) want += x.get(i) * x.get(i);
        EXPECT_NEAR(all.get(s), want, 1e-12 * want) << name_of(d) << " " << n << " segment " << s;
      }
    }
}

TEST(Sums, CarryNan) {
  Ctx ctx;
  Array x = random(DType::f32, {20000}, 1), out = scalars({0});
  x.set(17001, std::nan(""));
  ops::sum_squares(ctx, {.out = store(out), .x = x});
  EXPECT_TRUE(std::isnan(out.get(0)));
}

}  // namespace
}  // namespace qtrain
