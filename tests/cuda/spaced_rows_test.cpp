#include "tests/cuda/each_type.h"
#include "tests/kernels/spaced_rows_cases.h"

namespace qtrain::testing {
namespace {

TEST(SpacedRowsOnCuda, AreNormalized) {
  in_each_type_on_cuda(norms_of_spaced_rows);
}

TEST(SpacedRowsOnCuda, AreGated) {
  in_each_type_on_cuda(gates_of_spaced_rows);
}

TEST(SpacedRowsOnCuda, AreExpanded) {
  in_each_type_on_cuda(expands_to_spaced_rows);
}

TEST(AdapterColumnsOnCuda, AreBesideTheWeights) {
  in_each_type_on_cuda(puts_adapters_beside_weights);
}

}  // namespace
}  // namespace qtrain::testing
