#include "kernels/rank_rows.h"

#include "tests/kernels/each_type.h"
#include "tests/kernels/rank_rows_cases.h"

namespace qtrain::testing {
namespace {

TEST(RankRows, AreAddedInOrderAndRoundedOnce) {
  in_each_type({DType::f64, DType::f32, DType::bf16}, adds_rows);
}

TEST(RankRows, ChangePlaces) {
  in_each_type({DType::f64, DType::f32, DType::f16, DType::bf16}, reverses_rows);
}

}  // namespace
}  // namespace qtrain::testing
