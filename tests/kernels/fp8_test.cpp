#include "tests/kernels/fp8_block_cases.h"

#include <gmock/gmock.h>

#include "tests/errors.h"
#include "tests/kernels/each_type.h"

namespace qtrain::testing {
namespace {

template <class F>
void expect_every_code_and_midpoint() {
  for (unsigned code = 0; code < 127; ++code) {
    const float low = decode_fp8<F>(static_cast<std::uint8_t>(code));
    const float high = decode_fp8<F>(static_cast<std::uint8_t>(code + 1));
    if (!std::isfinite(low)) continue;
    EXPECT_EQ(int(encode_fp8<F>(low)), int(code));
    EXPECT_EQ(int(encode_fp8<F>(-low)), int(code | 128U));
    if (!std::isfinite(high)) continue;
    const float middle = (low + high) / 2;
    EXPECT_EQ(int(encode_fp8<F>(middle)), int(code % 2 == 0 ? code : code + 1)) << "to the even one";
    EXPECT_EQ(int(encode_fp8<F>(std::nextafter(middle, 0.0F))), int(code));
    EXPECT_EQ(int(encode_fp8<F>(std::nextafter(middle, high))), int(code + 1));
  }
}

TEST(Fp8, RoundsToNearestEven) {
  expect_every_code_and_midpoint<E4m3>();
  expect_every_code_and_midpoint<E5m2>();
}

TEST(Fp8, SaturatesAndKeepsNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float large : {449.0F, 1e30F, kInf}) EXPECT_EQ(decode_fp8<E4m3>(encode_fp8<E4m3>(large)), 448);
  for (const float large : {57345.0F, 1e30F, kInf}) EXPECT_EQ(decode_fp8<E5m2>(encode_fp8<E5m2>(-large)), -57344);
  EXPECT_TRUE(std::isnan(decode_fp8<E4m3>(encode_fp8<E4m3>(std::nanf("")))));
  EXPECT_TRUE(std::isnan(decode_fp8<E5m2>(encode_fp8<E5m2>(std::nanf("")))));
  EXPECT_EQ(decode_fp8<E5m2>(0x7c), kInf);
  // The smallest positive numbers in the OCP specification.
  EXPECT_EQ(decode_fp8<E4m3>(1), 0x1p-9F);
  EXPECT_EQ(decode_fp8<E5m2>(1), 0x1p-16F);
}

TEST(ToFp8, EncodesMatrices) {
  in_each_type({DType::f32, DType::bf16}, encodes_fp8);
}

TEST(ToFp8, HasAScaleForEveryMatrix) {
  in_each_type({DType::f32, DType::bf16}, encodes_special_fp8);
}

TEST(ToFp8, EncodesBlocks) {
  in_each_type({DType::f32, DType::bf16}, encodes_fp8_blocks);
}

TEST(ToFp8, HasAScaleForEveryBlock) {
  in_each_type({DType::f32, DType::bf16}, encodes_special_fp8_blocks);
}

TEST(GemmInFp8, MultipliesBlocks) {
  in_each_type({DType::f32, DType::bf16}, multiplies_fp8_blocks);
}

TEST(PlaceScales, PutsThemWhereTheLibraryReadsThem) {
  Ctx ctx;
  places_scales(ctx);
}

TEST(GemmInFp8, MultipliesTheCodes) {
  in_each_type({DType::f32, DType::bf16}, multiplies_fp8);
}

TEST(LargestMagnitudes, AreThoseOfTheRowsThatAreWritten) {
  in_each_type({DType::f32, DType::bf16}, finds_largest);
}

TEST(ExpandFp8, MultipliesByTheScaleOfTheBlock) {
  in_each_type({DType::f32, DType::bf16, DType::f16}, expands_fp8);
}

TEST(TransposeFp8, MovesEveryCode) {
  Ctx ctx;
  transposes_fp8(ctx);
}

TEST(GemmInFp8, ReadsAStoredOperand) {
  in_each_type({DType::f32, DType::bf16}, multiplies_stored_fp8);
}

TEST(GemmInFp8, RefusesAStoredOperandThatItCannotRead) {
  Ctx ctx;
  Array a = random(DType::f32, {4, 24}, 1), codes(DType::u8, {16, 24}), scale(DType::f32, {1}), c(DType::f32, {4, 16});
  ConstTensor b = codes;
  b.dtype = DType::f8_e4m3;
  ops::Gemm g{.c = store(c), .a = a, .b = b, .transpose_b = ops::Transpose::yes};
  EXPECT_THAT(test::error_of([&] { ops::gemm(ctx, g); }).what(), ::testing::HasSubstr("stored operand")) << "plain";
  g.fp8 = {.a = DType::f8_e4m3, .b = DType::f8_e4m3, .b_scale = scale};
  EXPECT_FALSE(ops::multiplies_in_fp8(g)) << "rows of 24 codes";
}

TEST(GemmInFp8, NeedsRowsOfWholeVectors) {
  Array a = random(DType::bf16, {4, 8}, 1), b = random(DType::bf16, {8, 24}, 2), c(DType::f32, {4, 24});
  ops::Gemm g{.c = store(c), .a = a, .b = b, .fp8 = ops::Gemm::Fp8{DType::f8_e4m3, DType::f8_e4m3}};
  EXPECT_FALSE(ops::multiplies_in_fp8(g)) << "24 columns";
  g.b.shape = {8, 16};
  g.b_stride = 24;
  g.c.t.shape = {4, 16};
  EXPECT_TRUE(ops::multiplies_in_fp8(g));
  g.c_stride = 24;
  EXPECT_FALSE(ops::multiplies_in_fp8(g)) << "columns of a wider result";
}

TEST(GemmInFp8, PassesOnValuesThatAreNotFinite) {
  Ctx ctx;
  Array a = random(DType::f32, {4, 8}, 1), b = random(DType::f32, {8, 16}, 2), c(DType::f32, {4, 16});
  a.set(9, std::numeric_limits<double>::infinity());
  ops::gemm(ctx, {.c = store(c), .a = a, .b = b, .fp8 = ops::Gemm::Fp8{DType::f8_e4m3, DType::f8_e4m3}});
  for (const double v : c.values()) EXPECT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace qtrain::testing
