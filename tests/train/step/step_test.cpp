#include "train/step/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "optim/table.h"
#include "tests/dist/local_ranks.h"
#include "tests/model/support.h"

namespace qtrain {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

// Otherwise the ranks would name different parameters.
TEST(TrainStep, ANonFiniteGradientOfOneRankIsKnownToAll) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::weights}) {
    const auto errors = test::on_ranks(2, [&](Ctx& ctx, Collective& ranks) {
      Transformer model(ctx, {.config = parse_model_config(testing::small_config({}), "small"),
                              .sharding = {.stage = stage, .ranks = 2, .rank = ranks.rank()}});
      Runner runner(model, {.passes = {{Pass::train, {.tokens = 4, .positions = 4, .targets = 3}}}});
      Optimizer optimizer(ctx, make_rule({}), model.trained(), Placement::device);
      optimizer.allocate(ctx);
      ShardRanks shards(ranks, model.options().sharding);
      TrainStep step(ctx, {.runner = runner, .optimizer = optimizer, .ranks = shards}, {.max_tokens = 4});
      step.begin(1);
      int of_first = 0, of_second = 0;
      for (Param* p : model.trained()) {
        EXPECT_TRUE(step.has_finite_gradient(*p));
        const bool mine = p->own.count() > 0, whole = p->own.count() == p->value.numel();
        if (ranks.rank() == 1 && mine) p->own.grad.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
        const bool second = ranks.rank() == 1 ? mine : !whole;
        ++(second ? of_second : of_first);
        EXPECT_EQ(step.has_finite_gradient(*p), !second) << p->spec.name;
      }
      EXPECT_GT(of_first, 0);
      EXPECT_GT(of_second, 0);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

// The first micro-batch stores gradients; if there is none, those of the last step must not stay.
TEST(TrainStep, WithoutAMicroBatchLeavesNoGradient) {
  for (const bool skips : {true, false}) {
    const auto errors = test::on_ranks(2, [&](Ctx& ctx, Collective& ranks) {
      Transformer model(ctx, {.config = parse_model_config(testing::small_config({}), "small")});
      Runner runner(model, {.passes = {{Pass::train, {.tokens = 4, .positions = 4, .targets = 3}}}});
      Optimizer optimizer(ctx, make_rule({}), model.trained(), Placement::device);
      optimizer.allocate(ctx);
      ShardRanks all(ranks, model.options().sharding);
      TrainStep step(ctx, {.runner = runner, .optimizer = optimizer, .ranks = all}, {.max_tokens = 4});
      for (const Param* p : model.trained()) std::ranges::fill(p->grad.span<float>(), 3.0F);
      step.begin(skips ? 1 : 0);
      if (skips) {
        step.skip();
        step.end_micro_batch();
      }
      EXPECT_EQ(step.finish({}).squares, 0);
      for (const Param* p : model.trained())
        for (const float g : p->grad.span<float>()) ASSERT_EQ(g, 0) << p->spec.name;
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

}  // namespace
}  // namespace qtrain
