// What the ranks that share a parameter have after an update.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/dist/local_ranks.h"
#include "train/ranks/gradient_exchange.h"

namespace qtrain {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr int kRanks = 3;                   // of a group
constexpr std::int64_t kLarge = 1'500'000;  // longer than what is sent at once

/// An element of the gradient on one rank; the values make every summation order give different bits.
float value_of(int rank, std::int64_t i) {
  const auto mixed = static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(rank) * 40503U;
  return static_cast<float>(mixed >> 8U) * 0x1p-24F - 0.5F;
}

float sum_of(int ranks, std::int64_t i, float sum) {
  for (int r = 0; r < ranks; ++r) sum += value_of(r, i);
  return sum;
}

float rounded(float x) {
  return Bf16(x);
}

// The rounded sum over the ranks of a group.
float rounded_sum_of(int group, std::int64_t i, float sum) {
  for (int r = 0; r < kRanks; ++r) sum += rounded(value_of(group * kRanks + r, i));
  return sum;
}

struct Division {
  ZeroStage stage;
  int replicas = 1;
  ReductionOrder order = ReductionOrder::ranks;
  DType wire = DType::f32;
  Cut cut = Cut::anywhere;
};

/// One rank, and a parameter that is sharded among several.
struct Rank {
  Rank(Ctx& c, Collective& ranks, const Division& d, std::int64_t n)
      : number(ranks.rank()),
        ctx(c),
        store("weights", {}, Placement::device,
              {.stage = d.stage,
               .ranks = kRanks,
               .rank = number % kRanks,
               .replicas = d.replicas,
               .replicas_agree = d.cut == Cut::anywhere,
               .cut = [cut = d.cut](const ParamSpec&) { return cut; }}),
        p(store.declare({.name = "w", .shape = {n}, .update = Update::trained})),
        shared(ranks, store.sharding()),
        stores{&store} {
    store.allocate();
    exchange.emplace(shared, ReductionOptions{.order = d.order, .wire = d.wire}, stores);
  }
  void fill_gradients(float own) {
    for (std::int64_t i = 0; i < p.grad.numel(); ++i) p.grad.as<float>()[i] = value_of(number, i);
    if (store.sharding().divides_gradients()) std::ranges::fill(p.own.grad.span<float>(), own);
  }
  /// A step in which every micro-batch has the same gradients.
  void reduce(int micro_batches) {
    exchange->begin_step(micro_batches);
    for (int i = 0; i < micro_batches; ++i) {
      exchange->finish_gradients(ctx, p.unit);
      exchange->end_micro_batch(ctx);
    }
    exchange->finish_step(ctx);
  }

  int number;
  Ctx& ctx;
  ParamStore store;
  Param& p;
  ShardRanks shared;
  std::array<const ParamStore*, 1> stores;
  std::optional<GradientExchange> exchange;
};

void on_each_rank(const Division& d, std::int64_t n, const std::function<void(Rank&)>& work) {
  const auto errors = test::on_ranks(kRanks * d.replicas, [&](Ctx& ctx, Collective& ranks) {
    Rank rank(ctx, ranks, d, n);
    work(rank);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

class DividedStoreOf : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(DividedStoreOf, GathersWhatEachRankHas) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::weights})
    for (const int replicas : {1, 2})
      on_each_rank({stage, replicas}, GetParam(), [stage](Rank& rank) {
        Param& p = rank.p;
        std::ranges::fill(p.value.span<float>(), -1.0F);
        for (std::int64_t i = p.own.begin; i < p.own.end(); ++i)
          p.own.value.as<float>()[i - p.own.begin] = static_cast<float>(i);
        if (stage == ZeroStage::weights)
          rank.exchange->enter(rank.ctx, {.unit = p.unit});
        else
          rank.exchange->finish_update(rank.ctx);
        for (std::int64_t i = 0; i < p.value.numel(); ++i) ASSERT_EQ(p.value.as<float>()[i], static_cast<float>(i));
      });
}

// In rank order, added to the previous values or replacing them.
TEST_P(DividedStoreOf, AddsGradientsInOrder) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    on_each_rank({stage}, GetParam(), [&](Rank& rank) {
      const bool adds = stage == ZeroStage::gradients;
      rank.fill_gradients(0.25F);
      rank.reduce(1);
      const ParamPart& own = rank.p.own;
      for (std::int64_t i = own.begin; i < own.end(); ++i) {
        const float sum = adds ? sum_of(kRanks, i, 0.25F) : value_of(2, i) + (value_of(0, i) + value_of(1, i));
        ASSERT_EQ(own.grad.as<float>()[i - own.begin], sum) << i;
      }
    });
}

// Two micro-batches. Every replica has the same sums: within groups first and then across them, or all in rank order.
TEST_P(DividedStoreOf, AddsGradientsOverReplicas) {
  constexpr int kReplicas = 2, kAll = kRanks * kReplicas;
  for (const ReductionOrder order : {ReductionOrder::ranks, ReductionOrder::micro_batches})
    on_each_rank({ZeroStage::gradients, kReplicas, order}, GetParam(), [&](Rank& rank) {
      rank.fill_gradients(0);
      rank.reduce(2);
      const ParamPart& own = rank.p.own;
      for (std::int64_t i = own.begin; i < own.end(); ++i) {
        const float found = own.grad.as<float>()[i - own.begin], sum = sum_of(kAll, i, sum_of(kAll, i, 0));
        // Sums of 12 numbers below one half, with up to 11 roundings.
        if (order == ReductionOrder::ranks)
          ASSERT_NEAR(found, sum, 22 * 0x1p-22F) << i;
        else
          ASSERT_EQ(found, sum) << i;
      }
    });
}

// Each once.
TEST_P(DividedStoreOf, RoundsGradientsOnTheirWay) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    on_each_rank({.stage = stage, .wire = DType::bf16}, GetParam(), [&](Rank& rank) {
      const bool adds = stage == ZeroStage::gradients;
      rank.fill_gradients(0.25F);
      rank.reduce(1);
      const ParamPart& own = rank.p.own;
      for (std::int64_t i = own.begin; i < own.end(); ++i)
        ASSERT_EQ(own.grad.as<float>()[i - own.begin], rounded_sum_of(0, i, adds ? 0.25F : 0)) << i;
    });
}

TEST_P(DividedStoreOf, TakesTheValuesOfTheFirstReplica) {
  on_each_rank({.stage = ZeroStage::weights, .replicas = 2, .cut = Cut::never}, GetParam(), [](Rank& rank) {
    const std::span<float> own = rank.p.own.value.span<float>();
    const auto first = static_cast<float>(rank.number % kRanks);
    std::ranges::fill(own, static_cast<float>(rank.number));
    rank.exchange->finish_update(rank.ctx);
    EXPECT_THAT(own, Each(first));
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, DividedStoreOf, ::testing::Values(1, 5000, kLarge),
                         [](const auto& info) { return std::to_string(info.param); });

// Sums of groups are rounded when sent to the rank that adds them, and so is the result that it returns.
TEST(DividedStore, RoundsSumsOfReplicasUnlessTheyAreInOrder) {
  for (const ReductionOrder order : {ReductionOrder::ranks, ReductionOrder::micro_batches})
    on_each_rank({ZeroStage::gradients, 2, order, DType::bf16}, 5000, [&](Rank& rank) {
      rank.fill_gradients(0);
      rank.reduce(2);
      const ParamPart& own = rank.p.own;
      for (std::int64_t i = own.begin; i < own.end(); ++i) {
        const float first = rounded_sum_of(0, i, rounded_sum_of(0, i, 0));
        const float second = rounded_sum_of(1, i, rounded_sum_of(1, i, 0));
        float all = 0;
        for (int batch = 0; batch < 2; ++batch) all = rounded_sum_of(1, i, rounded_sum_of(0, i, all));
        const float expected = order == ReductionOrder::ranks ? rounded(rounded(first) + rounded(second)) : all;
        ASSERT_EQ(own.grad.as<float>()[i - own.begin], expected) << i;
      }
    });
}

}  // namespace
}  // namespace qtrain
