#include "core/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "core/param_store.h"

namespace qtrain {
namespace {

using ::testing::Each;

/// The parameters of one rank: one outside blocks, then a block with parameters of these sizes.
struct Store : ParamStore {
  Store(const Sharding& sharding, const std::vector<std::int64_t>& sizes)
      : ParamStore("weights", {}, Placement::device, sharding) {
    declare({.name = "outer", .shape = {3000}, .update = Update::trained});
    begin_unit(1);
    for (const std::int64_t n : sizes)
      declare({.name = "p" + std::to_string(all().size()), .shape = {n}, .update = Update::trained});
    declare({.name = "frozen", .shape = {5000}, .dtype = DType::bf16});
  }
};

const std::vector<std::int64_t> kSizes{1, 7, 1024, 1025, 100000, 4097, 2048, 64};

struct Division {
  int ranks;
  Cut cut;
};
class Divided : public ::testing::TestWithParam<Division> {
 protected:
  Sharding of(int rank, ZeroStage stage) const {
    return {.stage = stage, .ranks = GetParam().ranks, .rank = rank, .cut = [](const ParamSpec&) {
              return GetParam().cut;
            }};
  }
};

TEST_P(Divided, EveryElementIsOwnedByOneRank) {
  std::map<std::string, std::vector<int>> owners;
  for (int rank = 0; rank < GetParam().ranks; ++rank) {
    Store store(of(rank, ZeroStage::weights), kSizes);
    store.allocate();
    for (const Param& p : store.all()) {
      std::vector<int>& counts = owners[p.spec.name];
      counts.resize(static_cast<std::size_t>(p.spec.shape.numel()));
      for (std::int64_t i = p.own.begin; i < p.own.end(); ++i) ++counts[static_cast<std::size_t>(i)];
      const bool whole = p.own.count() == 0 || p.own.count() == p.spec.shape.numel();
      EXPECT_TRUE(whole || (p.own.begin % kShardAlign == 0 && (GetParam().cut == Cut::anywhere || !p.trained())));
    }
  }
  for (const auto& [name, counts] : owners) EXPECT_THAT(counts, Each(1)) << name;
}

// If the rows of all ranks are concatenated, every part of a rank is where it is in the whole parameter.
TEST_P(Divided, RowsBehindEachOtherAreTheParameters) {
  const int ranks = GetParam().ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    Store store(of(rank, ZeroStage::weights), kSizes);
    store.allocate();
    for (const ShardGroup& g : store.groups())
      for (const Param* p : g.params) {
        if (p->own.count() == 0) continue;
        const auto element = static_cast<std::ptrdiff_t>(size_of(g.dtype));
        const std::ptrdiff_t in_row = p->own.value.data - g.own_values.data;
        const std::ptrdiff_t in_whole = p->value.data + p->own.begin * element - g.values.data;
        EXPECT_EQ(in_whole, in_row + g.row_begin(rank) * element) << p->spec.name;
        if (!p->trained()) continue;
        EXPECT_EQ(p->grad.data - g.grads.data, p->value.data - g.values.data);
        EXPECT_EQ(p->own.grad.data - g.own_grads.data, in_row);
      }
  }
}

TEST_P(Divided, NoRowIsMuchLongerThanItsShare) {
  Store store(of(0, ZeroStage::optimizer), kSizes);
  store.divide();
  for (const ShardGroup& g : store.groups()) {
    std::int64_t elements = 0, largest = 0;
    for (const Param* p : g.params) {
      elements += p->spec.shape.numel();
      largest = std::max(largest, p->spec.shape.numel());
    }
    const auto padding = static_cast<std::int64_t>(g.params.size() + 1) * kShardAlign;  // parameters begin aligned
    const std::int64_t share = elements / GetParam().ranks;
    EXPECT_LE(g.longest_row(), (g.is_even() ? share : std::max(share, largest)) + padding);
    EXPECT_LE(g.elements(), elements + GetParam().ranks * padding);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Divided,
                         ::testing::Values(Division{2, Cut::anywhere}, Division{3, Cut::anywhere},
                                           Division{7, Cut::anywhere}, Division{2, Cut::never},
                                           Division{5, Cut::never}),
                         [](const auto& info) {
                           return std::to_string(info.param.ranks) + (info.param.cut == Cut::never ? "Whole" : "Cut");
                         });

// ZeRO's promise: sharded memory is divided by the number of ranks.
TEST(Shards, EachStageDividesMore) {
  const std::int64_t n = std::int64_t{1} << 20;
  const auto bytes = [&](ZeroStage stage) {
    ParamStore store("weights", {}, Placement::device, {.stage = stage, .ranks = 4});
    for (int unit = 1; unit <= 8; ++unit) {
      store.begin_unit(unit);
      store.declare({.name = std::to_string(unit), .shape = {n}, .update = Update::trained});
    }
    store.divide();
    return std::vector<std::size_t>{store.values().planned(), store.grads().planned(), store.gathered().planned()};
  };
  const std::size_t all = 8 * n * sizeof(float), block = n * sizeof(float);
  EXPECT_EQ(bytes(ZeroStage::none), (std::vector<std::size_t>{all, all, 0}));
  EXPECT_EQ(bytes(ZeroStage::optimizer), (std::vector<std::size_t>{all, all, 0}));
  EXPECT_EQ(bytes(ZeroStage::gradients), (std::vector<std::size_t>{all, all / 4, 2 * block}));
  EXPECT_EQ(bytes(ZeroStage::weights), (std::vector<std::size_t>{all / 4, all / 4, 4 * block}));
}

TEST(Shards, EverySecondBlockHasTheSamePlace) {
  ParamStore store("weights", {}, Placement::device, {.stage = ZeroStage::weights, .ranks = 2});
  std::vector<const Param*> params{&store.declare({.name = "outer", .shape = {5000}, .update = Update::trained})};
  for (const std::int64_t n : {3000, 9000, 7000}) {
    store.begin_unit(static_cast<int>(params.size()));
    params.push_back(&store.declare({.name = std::to_string(n), .shape = {n}, .update = Update::trained}));
  }
  store.allocate();
  EXPECT_EQ(params[1]->value.data, params[3]->value.data);
  const auto overlap = [](const Tensor& a, const Tensor& b) {
    return a.data < b.data + b.bytes() && b.data < a.data + a.bytes();
  };
  for (const auto& [a, b] : {std::pair(0, 1), {0, 2}, {1, 2}, {2, 3}})
    for (const Tensor& s : {params[a]->value, params[a]->grad})
      for (const Tensor& t : {params[b]->value, params[b]->grad}) EXPECT_FALSE(overlap(s, t)) << a << " " << b;
  for (const Param* p : params) EXPECT_FALSE(overlap(p->value, p->grad)) << p->spec.name;
  EXPECT_FALSE(overlap(params[1]->own.value, params[3]->own.value));
}

// Random values depend only on the seed, the name and the element.
TEST(Shards, InitialValuesAreThoseOfOneRank) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const auto declare = [](ParamStore& store) -> Param& {
    return store.declare({.name = "w", .shape = {70001}, .init = {Init::Kind::normal, 1}, .update = Update::trained});
  };
  ParamStore alone("weights");
  const Param& whole = declare(alone);
  alone.allocate();
  alone.initialize(ctx, 5);
  for (int rank = 0; rank < 3; ++rank) {
    ParamStore store("weights", {}, Placement::device, {.stage = ZeroStage::weights, .ranks = 3, .rank = rank});
    const Param& p = declare(store);
    store.allocate();
    store.initialize(ctx, 5);
    const Tensor expected = whole.value.slice(p.own.begin, p.own.count());
    EXPECT_EQ(std::memcmp(p.own.value.data, expected.data, expected.bytes()), 0) << rank;
  }
}

}  // namespace
}  // namespace qtrain
