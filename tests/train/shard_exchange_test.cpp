#include "train/shard_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/dist/local_ranks.h"

namespace qtrain {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr int kRanks = 3;
constexpr std::int64_t kLarge = 1'500'000;  // a row is longer than what is sent at once

/// The value of an element of a gradient of one rank: no two sums in another order need be equal.
float value_of(int rank, std::int64_t i) {
  const auto mixed = static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(rank) * 40503U;
  return static_cast<float>(mixed >> 8U) * 0x1p-24F - 0.5F;
}

void on_each_rank(ZeroStage stage, std::int64_t n,
                  const std::function<void(Ctx&, ParamStore&, Param&, ShardExchange&)>& work) {
  const auto errors = test::on_ranks(kRanks, [&](Ctx& ctx, Collective& ranks) {
    ParamStore store("weights", {}, Placement::device, {.stage = stage, .ranks = kRanks, .rank = ranks.rank()});
    Param& p = store.declare({.name = "w", .shape = {n}, .update = Update::trained});
    store.allocate();
    const std::array<const ParamStore*, 1> stores{&store};
    ShardExchange exchange(ranks, {.device = {}}, stores);
    work(ctx, store, p, exchange);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

class ShardExchangeOf : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(ShardExchangeOf, GathersWhatEachRankHas) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::weights})
    on_each_rank(stage, GetParam(), [](Ctx& ctx, ParamStore& store, Param& p, ShardExchange& exchange) {
      std::ranges::fill(p.value.span<float>(), -1.0F);
      for (std::int64_t i = p.own.begin; i < p.own.end(); ++i)
        p.own.value.as<float>()[i - p.own.begin] = static_cast<float>(i);
      exchange.gather(ctx, store.groups()[0]);
      for (std::int64_t i = 0; i < p.value.numel(); ++i) ASSERT_EQ(p.value.as<float>()[i], static_cast<float>(i));
    });
}

// In the order of the ranks, on what was there before or instead of it.
TEST_P(ShardExchangeOf, AddsGradientsInOrder) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    on_each_rank(stage, GetParam(), [&](Ctx& ctx, ParamStore& store, Param& p, ShardExchange& exchange) {
      const bool adds = stage == ZeroStage::gradients;
      const int rank = store.sharding().rank;
      if (adds) std::ranges::fill(p.own.grad.span<float>(), 0.25F);
      for (std::int64_t i = 0; i < p.grad.numel(); ++i) p.grad.as<float>()[i] = value_of(rank, i);
      exchange.reduce(ctx, store.groups()[0], adds ? Sink::Mode::accumulate : Sink::Mode::store);
      for (std::int64_t i = p.own.begin; i < p.own.end(); ++i) {
        float sum = adds ? 0.25F + value_of(0, i) : value_of(0, i);
        for (int r = 1; r < kRanks; ++r) sum += value_of(r, i);
        ASSERT_EQ(p.own.grad.as<float>()[i - p.own.begin], sum) << i;
      }
    });
}
INSTANTIATE_TEST_SUITE_P(Sizes, ShardExchangeOf, ::testing::Values(1, 5000, kLarge),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace qtrain
