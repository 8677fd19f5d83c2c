#include "tests/kernels/spaced_rows_cases.h"

#include "tests/kernels/each_type.h"

namespace qtrain::testing {
namespace {

TEST(SpacedRows, AreNormalized) {
  in_each_type({DType::f64, DType::f32, DType::bf16}, norms_of_spaced_rows);
}

TEST(SpacedRows, AreGated) {
  in_each_type({DType::f64, DType::f32, DType::bf16}, gates_of_spaced_rows);
}

TEST(SpacedRows, AreExpanded) {
  in_each_type({DType::f32, DType::bf16}, expands_to_spaced_rows);
}

TEST(AdapterColumns, AreBesideTheWeights) {
  in_each_type({DType::f64, DType::f32, DType::bf16}, puts_adapters_beside_weights);
}

TEST(AdapterColumns, RefusesLayersThatDoNotFit) {
  Ctx ctx;
  Array y(DType::f32, {4, 8}), w(DType::f32, {4, 6}), b(DType::f32, {4, 2}), half(DType::bf16, {4, 6});
  const auto put = [&](const ops::AdapterColumns::Layer& l) {
    ops::adapter_columns(ctx, {.y = y, .y_stride = 8, .layers = {l}});
  };
  put({.rows = 4, .w = w, .b = b});
  EXPECT_THROW(put({.rows = 3, .w = w.tensor().slice(0, 3), .b = b.tensor().slice(0, 3)}), Error);
  EXPECT_THROW(put({.rows = 4, .w = w}), Error) << "K + R is 8";
  EXPECT_THROW(put({.rows = 4, .w = half, .b = b}), Error);
}

}  // namespace
}  // namespace qtrain::testing
