#include "kernels/rank_rows.h"

#include "tests/cuda/schedules.h"
#include "tests/kernels/rank_rows_cases.h"

namespace qtrain::testing {
namespace {

TEST(RankRowsOnCuda, AreAddedInOrderAndRoundedOnce) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  for (const DType d : {DType::f32, DType::f16, DType::bf16}) adds_rows(ctx, d);
}

TEST(RankRowsOnCuda, ChangePlaces) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  for (const DType d : {DType::f32, DType::f16, DType::bf16}) reverses_rows(ctx, d);
}

}  // namespace
}  // namespace qtrain::testing
