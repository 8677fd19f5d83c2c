// Groups of GPUs clip gradients by the same norm, whatever NCCL's summation order in each group.
#include <gtest/gtest.h>

#include "core/transfer.h"
#include "tests/emulator/small_model.h"
#include "train/ranks/gradient_squares.h"

namespace qtrain::testing {
namespace {

constexpr double kOfFirst = 0.75;

/// Two ranks, the other of which adds nothing.
struct Twins : Solo {
  int size() const override { return 2; }
};

/// The second of two replicas; the first has a different sum.
struct Second : Twins {
  int rank() const override { return 1; }
  void broadcast(Ctx& ctx, Tensor values, int root) override {
    ASSERT_EQ(root, 0);
    ASSERT_EQ(values.bytes(), sizeof(double));
    ctx.stream().copy(values.data, &kOfFirst, sizeof(double));
    ctx.synchronize();
  }
};

/// The last of four ranks in two groups.
struct Groups : Solo {
  int rank() const override { return 3; }
  int size() const override { return 4; }
  std::unique_ptr<Collective> part(int, int) override { return std::make_unique<Twins>(); }
  std::unique_ptr<Collective> counterparts(int) override { return std::make_unique<Second>(); }
};

double norm_of_second(ReductionOrder order) {
  ParamStore store("weights", kCuda);
  Param& p = store.declare({.name = "w", .shape = {8}, .update = Update::trained});
  store.allocate();
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  store.zero_grads(ctx);
  Groups ranks;
  ShardRanks groups(ranks, {.stage = ZeroStage::optimizer, .ranks = 2, .rank = 1, .replicas = 2});
  GradientSquares squares(groups, kCuda, order, {&p});
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
