#include "kernels/rank_rows.h"

#include "tests/cuda/each_type.h"
#include "tests/kernels/rank_rows_cases.h"

namespace qtrain::testing {
namespace {

TEST(RankRowsOnCuda, AreAddedInOrderAndRoundedOnce) {
  in_each_type_on_cuda(adds_rows);
}

TEST(RankRowsOnCuda, ChangePlaces) {
  in_each_type_on_cuda(reverses_rows);
}

}  // namespace
}  // namespace qtrain::testing
