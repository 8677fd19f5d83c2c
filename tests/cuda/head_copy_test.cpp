#include "kernels/head_copy.h"

#include "tests/cuda/each_type.h"
#include "tests/kernels/head_copy_cases.h"

namespace qtrain::testing {
namespace {

TEST(HeadCopyOnCuda, TakesSomeOfMany) {
  in_each_type_on_cuda(copies_heads);
}

}  // namespace
}  // namespace qtrain::testing
