#include "kernels/head_copy.h"

#include "tests/cuda/schedules.h"
#include "tests/kernels/head_copy_cases.h"

namespace qtrain::testing {
namespace {

TEST(HeadCopyOnCuda, TakesSomeOfMany) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  for (const DType d : {DType::f32, DType::f16, DType::bf16}) copies_heads(ctx, d);
}

}  // namespace
}  // namespace qtrain::testing
