#include "tests/cuda/each_type.h"
#include "tests/kernels/fp8_block_cases.h"

namespace qtrain::testing {
namespace {

void in_f32_and_bf16(void (*test)(Ctx&, DType)) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::bf16, 1);
  for (const DType d : {DType::f32, DType::bf16}) test(ctx, d);
}

TEST(ToFp8OnCuda, EncodesMatrices) {
  in_each_type_on_cuda(encodes_fp8);
}

TEST(ToFp8OnCuda, HasAScaleForEveryMatrix) {
  in_each_type_on_cuda(encodes_special_fp8);
}

TEST(ToFp8OnCuda, EncodesBlocks) {
  in_each_type_on_cuda(encodes_fp8_blocks);
}

TEST(ToFp8OnCuda, HasAScaleForEveryBlock) {
  in_each_type_on_cuda(encodes_special_fp8_blocks);
}

TEST(GemmInFp8OnCuda, MultipliesBlocks) {
  in_f32_and_bf16(multiplies_fp8_blocks);
}

TEST(PlaceScalesOnCuda, PutsThemWhereTheLibraryReadsThem) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::bf16, 1);
  places_scales(ctx);
}

TEST(GemmInFp8OnCuda, MultipliesTheCodes) {
  in_f32_and_bf16(multiplies_fp8);
}

TEST(GemmInFp8OnCuda, ReadsAStoredOperand) {
  in_f32_and_bf16(multiplies_stored_fp8);
}

TEST(LargestMagnitudesOnCuda, AreThoseOfTheRowsThatAreWritten) {
  in_each_type_on_cuda(finds_largest);
}

TEST(ExpandFp8OnCuda, MultipliesByTheScaleOfTheBlock) {
  in_each_type_on_cuda(expands_fp8);
}

TEST(TransposeFp8OnCuda, MovesEveryCode) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::bf16, 1);
  transposes_fp8(ctx);
}

}  // namespace
}  // namespace qtrain::testing
