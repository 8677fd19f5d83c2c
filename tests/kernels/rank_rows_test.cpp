#include "kernels/rank_rows.h"

#include "tests/kernels/rank_rows_cases.h"

namespace qtrain::testing {
namespace {

TEST(RankRows, AreAddedInOrderAndRoundedOnce) {
  Ctx ctx({}, MatmulPrecision::storage, 3);
  for (const DType d : {DType::f64, DType::f32, DType::bf16}) adds_rows(ctx, d);
}

TEST(RankRows, ChangePlaces) {
  Ctx ctx({}, MatmulPrecision::storage, 3);
  for (const DType d : {DType::f64, DType::f32, DType::f16, DType::bf16}) reverses_rows(ctx, d);
}

}  // namespace
}  // namespace qtrain::testing
