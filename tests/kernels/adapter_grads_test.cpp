#include "kernels/adapter_grads.h"

#include "tests/kernels/adapter_grads_cases.h"
#include "tests/kernels/each_type.h"

namespace qtrain::testing {
namespace {

TEST(AdapterGrads, AreSumsOverOutputsAndTokens) {
  in_each_type({DType::f64, DType::f32}, computes_adapter_grads);
}

TEST(AdapterGrads, RefusesWhatDoesNotFit) {
  Ctx ctx;
  Array dy(DType::f32, {4, 16}), u(DType::f32, {4, 8}), du(DType::f32, {4, 8}), b(DType::f32, {16, 8}),
      other(DType::f32, {5, 8}), db(DType::f32, {16, 8});
  const auto compute = [&](const ops::AdapterGrads::Layer& l) { ops::adapter_grads(ctx, {.layers = {l}}); };
  EXPECT_NO_THROW(compute({.dy = dy, .b = b, .u = u, .du = du, .db = store(db)}));
  EXPECT_THROW(compute({.dy = dy, .b = b, .u = other, .du = other, .db = store(db)}), Error);
  EXPECT_THROW(compute({.dy = dy, .b = other, .u = u, .du = du, .db = store(db)}), Error);
  EXPECT_THROW(compute({.dy = dy, .b = b, .u = u, .du = du, .db = store(other)}), Error);
  EXPECT_THROW(compute({.dy = dy, .b = b, .u = u, .du = du, .db = store(db), .copy = dy}), Error);
}

}  // namespace
}  // namespace qtrain::testing
