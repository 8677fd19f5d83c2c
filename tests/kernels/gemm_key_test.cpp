#include "kernels/gemm_key.h"

#include <set>

#include "tests/kernels/op_run.h"

namespace qtrain::testing {
namespace {

using ops::Transpose;

/// Memory that starts this many bytes after a multiple of 256.
class Placed {
 public:
  Tensor at(std::size_t offset, DType dtype, const Shape& shape) {
    auto first = reinterpret_cast<std::uintptr_t>(memory_.data());
    const std::size_t padding = (256 - first % 256) % 256;
    return {memory_.data() + padding + offset, dtype, shape};
  }

 private:
  std::vector<std::byte> memory_{std::size_t{1} << 16};
};

// cuBLASLt gets one alignment for both; it reads a bias in vectors of up to 16 bytes.
TEST(GemmKey, PromisesNoMoreThanTheBiasHas) {
  Placed memory;
  const auto written = [&](std::size_t result, std::optional<std::size_t> bias) {
    ops::Gemm g{.c = store(memory.at(result, DType::bf16, {4, 8})),
                .a = memory.at(0, DType::bf16, {4, 16}),
                .b = memory.at(0, DType::bf16, {16, 8})};
    if (bias) g.bias = memory.at(*bias, DType::bf16, {8});
    return key_of(g, MatmulPrecision::bf16).align_written();
  };
  EXPECT_EQ(written(0, {}), 256u);
  EXPECT_EQ(written(16, {}), 16u);
  EXPECT_EQ(written(0, 8), 8u);
  EXPECT_EQ(written(0, 2), 2u);
  EXPECT_EQ(written(4, 64), 4u);
}

TEST(GemmKey, DescribesTheGemm) {
  Placed memory;
  const ops::Gemm g{.c = accumulate(memory.at(32, DType::f32, {5, 6})),
                    .a = memory.at(64, DType::bf16, {7, 5}),
                    .b = memory.at(2, DType::bf16, {7, 6}),
                    .transpose_a = Transpose::yes,
                    .b_stride = 9};
  const GemmKey key = key_of(g, MatmulPrecision::bf16);
  EXPECT_EQ(key.batch_rows(), 7);
  EXPECT_EQ(to_string(key), "m5 n6 k7 bfloat16>float32 tn rows 5/9/6 adds 64/2/32");
  EXPECT_NE(to_string(key_of(g, MatmulPrecision::tf32)), to_string(key));
}

TEST(GemmKey, DistinguishesBlocksOfCodes) {
  Placed memory;
  ops::Gemm g{.c = store(memory.at(0, DType::f32, {4, 16})),
              .a = memory.at(0, DType::f8_e4m3, {4, 32}),
              .b = memory.at(0, DType::f8_e4m3, {16, 32}),
              .transpose_b = Transpose::yes,
              .fp8 = ops::Gemm::Fp8{DType::f8_e4m3, DType::f8_e4m3}};
  const std::string whole = to_string(key_of(g, MatmulPrecision::bf16));
  g.fp8->a_block = ops::Fp8Block::vector;
  g.fp8->b_block = ops::Fp8Block::square;
  EXPECT_EQ(to_string(key_of(g, MatmulPrecision::bf16)),
            "m4 n16 k32 float8_e4m3fn>float32 nt blocks 128*128x128 stores 256/256/256");
  EXPECT_EQ(whole, "m4 n16 k32 float8_e4m3fn>float32 nt stores 256/256/256");
  g.a.dtype = DType::bf16;  // a GEMM that is not in FP8 after all
  EXPECT_EQ(key_of(g, MatmulPrecision::bf16).block_a, ops::Fp8Block::matrix);
}

// The size class depends only on the rows that come from the batch.
TEST(GemmKey, HasFourClassesOfRowsForEachDoubling) {
  const auto rows = [](std::int64_t n) { return class_of({.m = n, .n = 9, .k = 11}).m; };
  for (std::int64_t n = 1; n <= 70'000; ++n) {
    ASSERT_GE(rows(n), n);
    ASSERT_LT(rows(n), n + (n + 3) / 4);
    ASSERT_EQ(rows(rows(n)), rows(n));
  }
  std::set<std::int64_t> classes;
  for (std::int64_t n = 1025; n <= 4096; ++n) classes.insert(rows(n));
  EXPECT_EQ(classes.size(), 8u);
  const GemmKey gradient = class_of({.m = 1000, .n = 1000, .k = 1000, .transpose_a = true});
  EXPECT_EQ(gradient, (GemmKey{.m = 1000, .n = 1000, .k = 1024, .transpose_a = true}));
}

TEST(GemmKey, IsTriedForMoreThanAFewRows) {
  EXPECT_FALSE(is_tried({.m = 1, .n = 4096, .k = 4096}));
  EXPECT_FALSE(is_tried({.m = 256, .n = 4096, .k = 4096}));
  EXPECT_TRUE(is_tried({.m = 257, .n = 4096, .k = 4096}));
  EXPECT_TRUE(is_tried({.m = 16, .n = 4096, .k = 8192, .transpose_a = true})) << "the gradient of an adapter";
}

// A gradient that is larger than the memory, for both orientations of A, written to columns of a wider matrix.
TEST(RepeatableGemm, IsTheFirstRowsOfIt) {
  constexpr std::int64_t kRows = 700, kColumns = 24, kDepth = 16, kStride = 30;
  Ctx ctx;
  for (const Transpose ta : {Transpose::yes, Transpose::no})
    for (const std::int64_t room : {256 * kStride, 700 * kStride - 6, 699 * kStride, 300 * kStride}) {
      Array a = random(DType::f32, ta == Transpose::yes ? Shape{kDepth, kRows} : Shape{kRows, kDepth}, 1),
            b = random(DType::f32, {kDepth, kColumns}, 2), c(DType::f32, {kRows, kStride}), memory(DType::f32, {room});
      Tensor columns = c;
      columns.shape = {kRows, kColumns};
      ops::Gemm g{.c = store(columns), .a = a, .b = b, .transpose_a = ta, .c_stride = kStride};
      ops::gemm(ctx, g);
      g.c = accumulate(columns);
      const auto part = repeatable(g, memory);
      ASSERT_TRUE(part);
      const std::int64_t rows = part->c.t.shape[0];
      EXPECT_EQ(rows, room == 700 * kStride - 6 ? kRows : room / kStride / 256 * 256);
      ops::gemm(ctx, *part);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < kColumns; ++j)
          ASSERT_EQ(memory.get(i * kStride + j), c.get(i * kStride + j)) << i << " " << j << " of " << room;
    }
  Array c(DType::f32, {kRows, kColumns}), x = random(DType::f32, {kRows, kDepth}, 1),
                                          w = random(DType::f32, {kDepth, kColumns}, 2),
                                          memory(DType::f32, {256 * kColumns - 1});
  EXPECT_FALSE(repeatable({.c = accumulate(c), .a = x, .b = w}, memory)) << "not one tile";
}

}  // namespace
}  // namespace qtrain::testing
