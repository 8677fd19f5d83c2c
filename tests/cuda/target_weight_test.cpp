#include "tests/cuda/each_type.h"
#include "tests/kernels/target_weight_cases.h"

namespace qtrain::testing {
namespace {

TEST(TargetWeightOnCuda, IsTheProbabilityOfTheTarget) {
  in_each_type_on_cuda(weights_targets_by_probability);
}

TEST(TargetWeightOnCuda, OfNoProbabilityMakesTheLossZero) {
  in_each_type_on_cuda(ignores_targets_of_no_probability);
}

}  // namespace
}  // namespace qtrain::testing
