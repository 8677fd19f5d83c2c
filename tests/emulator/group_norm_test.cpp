// Groups of GPUs clip gradients by the same norm, whatever NCCL's summation order in each group.
#include <gtest/gtest.h>

#include "core/transfer.h"
#include "tests/emulator/small_model.h"
#include "train/ranks/gradient_squares.h"

namespace qtrain::testing {
namespace {

constexpr double kOfFirst = 0.75;

/// The second of two replicas; the first has a different sum.
struct Second : Solo {
  int rank() const override { return 1; }
  int size() const override { return 2; }
  void broadcast(Ctx& ctx, Tensor values, int root) override {
    ASSERT_EQ(root, 0);
    ASSERT_EQ(values.bytes(), sizeof(double));
    ctx.stream().copy(values.data, &kOfFirst, sizeof(double));
    ctx.synchronize();
  }
};

double norm_of_second(ReductionOrder order) {
  ParamStore store("weights", kCuda);
  Param& p = store.declare({.name = "w", .shape = {8}, .update = Update::trained});
  store.allocate();
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  store.zero_grads(ctx);
  Solo group;
  Second replicas;
  GradientSquares squares(group, {.device = kCuda, .order = order, .divided = true, .replicas = &replicas}, {&p});
  DeviceNumbers sums(kCuda, 1);
  sums.clear(ctx);
  squares.add(ctx, sums[0]);
  return sums.read(ctx)[0];
}

TEST(GroupNorm, IsThatOfTheFirst) {
  EXPECT_EQ(norm_of_second(ReductionOrder::ranks), kOfFirst);
}

// With a fixed order, all replicas already have the same bits.
TEST(GroupNorm, InOrderIsEachOnesOwn) {
  EXPECT_EQ(norm_of_second(ReductionOrder::micro_batches), 0);
}

}  // namespace
}  // namespace qtrain::testing
