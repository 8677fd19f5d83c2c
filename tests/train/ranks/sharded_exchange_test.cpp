#include "train/ranks/gradient_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "dist/queued_collective.h"
#include "model/hf_folder.h"
#include "model/model_config.h"
#include "tests/model/support.h"

namespace qtrain {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr int kBlocks = 5;

/// Rank 0 of two with the same values and gradients: it receives copies of its own data.
struct Twin : Solo {
  struct State {
    std::vector<const std::byte*> gathered;  ///< what was gathered, in order
    std::chrono::milliseconds delay{0};      ///< before gradients leave
  };
  explicit Twin(State& s) : state(s) {}
  int size() const override { return 2; }
  void all_gather(Ctx&, ConstTensor mine, Tensor all) override {
    state.gathered.push_back(mine.data);
    for (std::size_t r = 0; r < 2; ++r) std::memcpy(all.data + r * mine.bytes(), mine.data, mine.bytes());
  }
  void all_to_all(Ctx&, ConstTensor sent, Tensor received) override {
    std::this_thread::sleep_for(state.delay);
    const std::size_t row = sent.bytes() / 2;
    for (std::size_t r = 0; r < 2; ++r) std::memcpy(received.data + r * row, sent.data, row);
  }
  State& state;
};

/// A model in which every value on this rank is initially the number of its unit.
class Divided {
 public:
  Divided(TransformerOptions options, ZeroStage stage, int buffers)
      : ranks(std::make_unique<Twin>(state)), model(ctx, with_sharding(std::move(options), stage, buffers)) {
    model.weights().zero_grads(ctx);
    divided = std::make_unique<GradientExchange>(
        shards, ReductionOptions{.order = ReductionOrder::micro_batches, .beside = buffers > 1},
        model.params().stores());
    runner.set_access(*divided);
    for (const ShardGroup& group : model.weights().groups()) fill(group.own_values, static_cast<float>(group.unit));
  }
  Divided(ZeroStage stage, int buffers)
      : Divided({.config = parse_model_config(testing::small_config({{"num_hidden_layers", kBlocks}}), "small")}, stage,
                buffers) {}

  static TransformerOptions with_sharding(TransformerOptions options, ZeroStage stage, int buffers) {
    options.sharding = {.stage = stage, .ranks = 2, .buffers = buffers};
    return options;
  }
  static void fill(const Tensor& t, float value) { std::ranges::fill(t.span<float>(), value); }
  void enter(int unit, int next = UnitAccess::kNoUnit) { divided->enter(ctx, {.unit = unit, .next = next}); }
  void expect_values(int unit, float value) {
    for (const ShardGroup& group : model.weights().groups_of(unit))
      EXPECT_THAT(group.values.span<float>(), Each(value)) << unit;
  }
  /// The units that were gathered since the last call. Waits for pending ones.
  std::vector<int> gathered() {
    ranks.barrier(ctx);
    std::vector<int> units;
    for (const std::byte* data : std::exchange(state.gathered, {}))
      for (const ShardGroup& group : model.weights().groups())
        if (group.own_values.data == data) units.push_back(group.unit);
    return units;
  }

  Ctx ctx{{}, MatmulPrecision::storage, 1};
  Twin::State state;
  QueuedCollective ranks;
  Transformer model;
  Runner runner{model, {.passes = {{Pass::train, {.tokens = 4, .positions = 4, .targets = 3}}}}};
  ShardRanks shards{ranks, model.options().sharding};
  std::unique_ptr<GradientExchange> divided;
};

// Gradients that are still being exchanged are neither cleared nor added to.
TEST(ShardedExchange, AddsTheGradientsOfUnitsThatShareMemory) {
  for (const int buffers : {1, 2}) {
    Divided d(ZeroStage::gradients, buffers);
    d.state.delay = std::chrono::milliseconds(20);
    for (int unit = kBlocks; unit >= 0; --unit) {
      d.divided->enter(d.ctx, {.unit = unit, .gradients = UnitAccess::Gradients::yes});
      for (const ShardGroup& group : d.model.weights().groups_of(unit)) {
        EXPECT_THAT(group.grads.span<float>(), Each(0.0F)) << unit;
        Divided::fill(group.grads, static_cast<float>(unit + 1));
      }
      d.divided->finish_gradients(d.ctx, unit);
    }
    d.divided->finish_step(d.ctx);
    for (const ShardGroup& group : d.model.weights().groups())
      EXPECT_THAT(group.own_grads.span<float>(), Each(2.0F * static_cast<float>(group.unit + 1)))
          << group.unit << " with " << buffers;
  }
}

TEST(ShardedExchange, GathersAUnitOnceAndWhileTheOneBeforeIsComputed) {
  Divided d(ZeroStage::weights, 2);
  std::vector<int> expected;
  for (int unit = 0; unit <= kBlocks; ++unit) {
    const bool last = unit == kBlocks;
    d.enter(unit, last ? UnitAccess::kNoUnit : unit + 1);
    d.expect_values(unit, static_cast<float>(unit));
    expected.clear();
    if (unit == 0) expected.push_back(0);
    if (!last) expected.push_back(unit + 1);
    EXPECT_THAT(d.gathered(), ElementsAreArray(expected)) << unit;
  }
  d.enter(kBlocks, kBlocks - 1);  // backward: both are in memory
  EXPECT_THAT(d.gathered(), ElementsAre());
  d.enter(kBlocks - 1, kBlocks - 2);
  EXPECT_THAT(d.gathered(), ElementsAre(kBlocks - 2));
}

// The next unit would overwrite the one that is being read.
TEST(ShardedExchange, WithOneBufferTheNextUnitWaits) {
  Divided d(ZeroStage::weights, 1);
  for (int unit = 1; unit < kBlocks; ++unit) {
    d.enter(unit, unit + 1);
    d.expect_values(unit, static_cast<float>(unit));
    EXPECT_THAT(d.gathered(), ElementsAre(unit));
  }
}

TEST(ShardedExchange, GathersAgainWhatHasOtherValues) {
  Divided d(ZeroStage::weights, 2);
  for (const int unit : {0, 3}) d.enter(unit);
  for (const int unit : {0, 3})
    for (const ShardGroup& group : d.model.weights().groups_of(unit)) Divided::fill(group.own_values, 0.5F);
  d.divided->values_changed();
  EXPECT_THAT(d.gathered(), ElementsAre(0, 3));
  for (const int unit : {0, 3}) {
    d.enter(unit);
    d.expect_values(unit, 0.5F);
  }
}

// Checks the values of this rank's part; the other rank's part is absent.
void expect_own_values(const ParamStore& store, int unit) {
  for (const ShardGroup& group : store.groups_of(unit))
    EXPECT_THAT(group.values.slice(0, group.own_values.numel()).span<float>(),
                ElementsAreArray(group.own_values.span<float>()))
        << unit;
}

// Frozen units do not split recorded passes, unless their weights are gathered.
TEST(ShardedExchange, ActsWhereSomethingIsTrained) {
  const std::filesystem::path folder = QTRAIN_SOURCE_DIR "/tests/golden/data/lora_dora_llama";
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::weights}) {
    const Divided d(
        {.config = load_model_config(folder), .base = Update::frozen, .lora = load_lora_config(folder / "adapter")},
        stage, 2);
    for (const int unit : {0, 1}) {
      const bool trained = unit == 1;
      EXPECT_EQ(d.divided->acts_on({.unit = unit, .gradients = UnitAccess::Gradients::yes}),
                trained || stage == ZeroStage::weights)
          << unit;
      EXPECT_EQ(d.divided->acts_on_gradients(unit), trained) << unit;
    }
  }
}

TEST(ShardedExchange, GathersAgainWhatWasLoaded) {
  const std::filesystem::path folder = QTRAIN_SOURCE_DIR "/tests/golden/data/lora_dora_llama";
  const ModelConfig config = load_model_config(folder);
  Divided base({.config = config}, ZeroStage::weights, 2);
  for (const int unit : {0, 1, 2}) base.enter(unit);
  load_base_weights(base.ctx, base.runner, folder);
  Divided adapted({.config = config, .base = Update::frozen, .lora = load_lora_config(folder / "adapter")},
                  ZeroStage::weights, 2);
  for (const int unit : {0, 1, 2}) adapted.enter(unit);
  load_adapter(adapted.ctx, adapted.runner, folder / "adapter");
  for (const int unit : {0, 1, 2}) {
    base.enter(unit);
    expect_own_values(base.model.weights(), unit);
    adapted.enter(unit);
    expect_own_values(adapted.model.adapter(), unit);
  }
}

}  // namespace
}  // namespace qtrain
