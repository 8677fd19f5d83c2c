#include "kernels/head_copy.h"

#include "tests/kernels/each_type.h"
#include "tests/kernels/head_copy_cases.h"

namespace qtrain::testing {
namespace {

TEST(HeadCopy, TakesSomeOfMany) {
  in_each_type({DType::f64, DType::f32, DType::bf16}, copies_heads);
}

TEST(HeadCopy, RefusesHeadsThatThereAreNot) {
  Ctx ctx;
  Array x(DType::f32, {4, 2, 8}), y(DType::f32, {4, 3, 8});
  EXPECT_THROW(ops::copy_heads(ctx, {.y = store(y), .x = x, .x_first = 1, .count = 2}), Error);
  EXPECT_THROW(ops::copy_heads(ctx, {.y = store(y), .x = x, .y_first = 2, .count = 2}), Error);
}

}  // namespace
}  // namespace qtrain::testing
