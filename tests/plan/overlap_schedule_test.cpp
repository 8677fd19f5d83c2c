#include "plan/overlap_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "model/runner.h"
#include "plan/step_exchanges.h"
#include "tests/errors.h"
#include "train/ranks/shard_ranks.h"

namespace qtrain {
namespace {

/// The costs of a step with identical blocks and identical units.
StepCosts costs(std::size_t blocks, StepCosts::Block block, StepCosts::Unit unit) {
  StepCosts c;
  c.blocks.assign(blocks, block);
  c.units.assign(blocks + 1, unit);
  return c;
}

std::int64_t count(const SimulatedStep& step, const std::string& begin) {
  return std::ranges::count_if(step.spans, [&](const SimulatedSpan& s) { return s.name.starts_with(begin); });
}

TEST(OverlapSchedule, OfWholeModelsEndsWithTheSum) {
  StepCosts c = costs(2, {.forward = 1, .backward = 2}, {});
  c.head = 1;
  c.update = 1;
  c.step_sum = 3;
  c.norm = 0.5;
  const SimulatedStep step = simulate_step({.micro_batches = 2}, c);
  EXPECT_DOUBLE_EQ(step.seconds, 2 * 7 + 3 + 0.5 + 1);
  EXPECT_DOUBLE_EQ(step.waiting(), 3.5);
  EXPECT_EQ(count(step, "gather") + count(step, "reduce"), 0);
}

TEST(OverlapSchedule, InOrderOfMicroBatchesEachIsAdded) {
  StepCosts c = costs(1, {.forward = 1, .backward = 1}, {});
  c.micro_batch_sum = 2;
  c.step_sum = 3;
  const StepShape shape{.order = ReductionOrder::micro_batches, .micro_batches = 4};
  EXPECT_DOUBLE_EQ(simulate_step(shape, c).seconds, 4 * (2 + 2) + 3);
}

// All communication is exposed: the gradients of four units are reduced before the update, and their values are
// gathered after it.
TEST(OverlapSchedule, DividedStatesAreExchangedAroundTheUpdate) {
  StepCosts c = costs(3, {.forward = 1, .backward = 2}, {.gather = 4, .reduce = 5});
  c.update = 1;
  EXPECT_DOUBLE_EQ(simulate_step({.stage = ZeroStage::optimizer}, c).seconds, 9 + 4 * 5 + 1 + 4 * 4);
}

// Reductions overlap with the second of two backward passes; only the last unit's gradients remain.
TEST(OverlapSchedule, WholeGradientsAreAddedBesideThePass) {
  const StepCosts c = costs(3, {.forward = 1, .backward = 2}, {.reduce = 2});
  for (const ZeroStage stage : {ZeroStage::none, ZeroStage::optimizer}) {
    EXPECT_DOUBLE_EQ(simulate_step({.stage = stage, .beside = true, .micro_batches = 2}, c).seconds, 2 * 9 + 2 * 2);
    const StepShape ordered{.stage = stage, .order = ReductionOrder::micro_batches, .beside = true, .micro_batches = 2};
    EXPECT_DOUBLE_EQ(simulate_step(ordered, c).seconds, 2 * (9 + 2 * 2)) << "memory of the first unit is waited for";
  }
}

// Reductions take 10 and backward passes of blocks 1, so the third block waits for the memory of the first one.
TEST(OverlapSchedule, MemoryOfGradientsIsWaitedFor) {
  const StepCosts c = costs(3, {.forward = 0, .backward = 1}, {.gather = 1, .reduce = 10});
  const SimulatedStep step = simulate_step({.stage = ZeroStage::gradients}, c);
  const auto last = std::ranges::find(step.spans, "backward of block 0", &SimulatedSpan::name);
  ASSERT_NE(last, step.spans.end());
  EXPECT_DOUBLE_EQ(last->begin, 11);
  EXPECT_DOUBLE_EQ(step.seconds, 41 + 4);
}

// Only the first two gathers and the last two reductions are exposed.
TEST(OverlapSchedule, LongBlocksHideWhatIsExchanged) {
  const StepCosts c = costs(3, {.forward = 10, .backward = 20}, {.gather = 4, .reduce = 5});
  const SimulatedStep step = simulate_step({.stage = ZeroStage::weights}, c);
  EXPECT_DOUBLE_EQ(step.seconds, 8 + 90 + 10);
  EXPECT_DOUBLE_EQ(step.waiting(), 18);
  EXPECT_DOUBLE_EQ(step.total(Lane::exchanging), 5 * 4 + 4 * 5);
}

// Each block waits for its values, which are gathered after the gradients of the previous block are reduced.
TEST(OverlapSchedule, OneBufferHidesNothing) {
  const StepCosts c = costs(3, {.forward = 10, .backward = 20}, {.gather = 4, .reduce = 5});
  EXPECT_DOUBLE_EQ(simulate_step({.stage = ZeroStage::weights, .buffers = 1}, c).seconds, 134);
}

TEST(OverlapSchedule, ShortBlocksWaitForEachExchange) {
  const StepCosts c = costs(2, {.forward = 1, .backward = 1}, {.gather = 10, .reduce = 10});
  EXPECT_DOUBLE_EQ(simulate_step({.stage = ZeroStage::weights}, c).seconds, 62);
}

// Units that are still in memory are not gathered again. Gathered are all four, block 0 for its backward pass, and
// again the last and the first.
TEST(OverlapSchedule, LaterMicroBatchesFindWhatIsThere) {
  const StepCosts c = costs(3, {.forward = 1, .backward = 1}, {.gather = 1, .reduce = 1});
  EXPECT_EQ(count(simulate_step({.stage = ZeroStage::weights}, c), "gather"), 5);
  const SimulatedStep two = simulate_step({.stage = ZeroStage::weights, .micro_batches = 2}, c);
  EXPECT_EQ(count(two, "gather"), 7);
  EXPECT_EQ(count(two, "reduce"), 8);
}

// Sums over replicas follow the gradients of the second micro-batch, overlapping with other blocks except for the last
// ones.
TEST(OverlapSchedule, ReplicasAreAddedOnceAnUpdate) {
  const StepCosts c = costs(2, {.forward = 1, .backward = 20}, {.reduce = 2, .settle = 3});
  const SimulatedStep step = simulate_step({.stage = ZeroStage::gradients, .micro_batches = 2}, c);
  EXPECT_DOUBLE_EQ(step.seconds, 42 + 2 * 2 + 42 + 2 * 5);
  EXPECT_EQ(count(step, "settle"), 3);
}

// After the update, one after another.
TEST(OverlapSchedule, ReplicasTakeTheValuesOfTheFirst) {
  const StepCosts c = costs(2, {.forward = 1, .backward = 2}, {.replicate = 5});
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::weights})
    EXPECT_DOUBLE_EQ(simulate_step({.stage = stage, .replicates = true}, c).seconds, 2 * 3 + 3 * 5);
  EXPECT_EQ(count(simulate_step({.stage = ZeroStage::weights}, c), "replicate"), 0) << "all ranks have the same values";
}

// The slower rank keeps the other one waiting, here after each block.
TEST(OverlapSchedule, ExchangesWaitForTheLastRank) {
  const StepCosts fast = costs(2, {.forward = 0, .backward = 1}, {.reduce = 2});
  StepCosts slow = fast;
  slow.blocks[1].backward = 4;
  slow.between = 1;
  const std::vector<StepCosts> ranks{fast, slow};
  const SimulatedStep step = simulate_step({.stage = ZeroStage::gradients}, ranks);
  EXPECT_DOUBLE_EQ(step.seconds, 1 + 4 + 2 + 2 + 2);
  EXPECT_DOUBLE_EQ(step.waiting(), 9) << "waiting time of the fast rank";
  EXPECT_DOUBLE_EQ(simulate_step({.stage = ZeroStage::gradients}, fast).seconds, 1 + 2 + 2 + 2);
}

// As on a GPU with overlap_comm=false, where a block's weights arrive on the computing stream.
TEST(OverlapSchedule, OneLaneHidesNothing) {
  const StepCosts c = costs(3, {.forward = 10, .backward = 20}, {.gather = 4, .reduce = 5});
  for (const ZeroStage stage : {ZeroStage::gradients, ZeroStage::weights}) {
    const SimulatedStep step = simulate_step({.stage = stage, .lane = ExchangeLane::computing}, c);
    EXPECT_DOUBLE_EQ(step.seconds, 90 + step.total(Lane::exchanging));
    EXPECT_EQ(step.waiting(), step.total(Lane::exchanging));
  }
  EXPECT_EQ(exchange_lane(DeviceKind::cuda, false), ExchangeLane::computing);
  for (const auto& [device, beside] :
       {std::pair(DeviceKind::cpu, false), {DeviceKind::cpu, true}, {DeviceKind::cuda, true}})
    EXPECT_EQ(exchange_lane(device, beside), ExchangeLane::own) << beside;
}

TEST(OverlapSchedule, LanesDoOneThingAtATime) {
  const StepCosts c = costs(5, {.forward = 3, .backward = 7}, {.gather = 4, .reduce = 6});
  const SimulatedStep step = simulate_step({.stage = ZeroStage::weights, .micro_batches = 3, .group = 2}, c);
  double until[2] = {0, 0};
  for (const SimulatedSpan& s : step.spans) {
    double& lane = until[static_cast<std::size_t>(s.lane)];
    EXPECT_GE(s.begin, lane) << s.name;
    lane = s.end;
  }
  EXPECT_LE(std::max(until[0], until[1]), step.seconds);
}

TEST(OverlapSchedule, RefusesUnitsThatAreNotThoseOfItsBlocks) {
  StepCosts c = costs(2, {}, {});
  c.units.pop_back();
  EXPECT_EQ(test::error_of([&] { simulate_step({}, c); }).kind(), ErrorKind::internal);
}

constexpr const char* kSmallModel = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 40,
  "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu"})";
constexpr int kRanks = 2;  // of a group

/// Rank 0 of several; records the calls of itself and its parts, by their names in timelines.
class NotingRanks : public Collective {
 public:
  NotingRanks(std::vector<std::string>& calls, int size) : calls_(calls), size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void all_reduce(Ctx&, Tensor values, Reduction) override { note("all_reduce", values); }
  void broadcast(Ctx&, Tensor values, int) override { note("broadcast", values); }
  void all_gather(Ctx&, ConstTensor mine, Tensor) override { note("all_gather", mine); }
  void all_to_all(Ctx&, ConstTensor sent, Tensor) override { note("all_to_all", sent); }
  void reduce_scatter(Ctx&, ConstTensor sent, Tensor) override { note("reduce_scatter", sent); }
  std::unique_ptr<Collective> part(int, int size) override { return std::make_unique<NotingRanks>(calls_, size); }
  std::unique_ptr<Collective> counterparts(int size) override { return part(0, size_ / size); }
  void barrier(Ctx&) override {}

 private:
  void note(std::string_view what, ConstTensor t) {
    calls_.push_back(fmt::format("{} of {} {}", what, t.numel(), name_of(t.dtype)));
  }
  std::vector<std::string>& calls_;
  int size_;
};

struct Schedule {
  ZeroStage stage;
  int buffers;
  const char* policy;
  ReductionOrder order;
  int replicas = 1;
  Cut cut = Cut::anywhere;  ///< how trained parameters may be cut, as with Muon
  bool dora = false, replicas_agree = true;
  DType wire = DType::f32;

  TransformerOptions options() const {
    TransformerOptions o{.config = parse_model_config(parse_json(kSmallModel, "config"), "config"),
                         .sharding = {.stage = stage,
                                      .ranks = kRanks,
                                      .replicas = replicas,
                                      .replicas_agree = replicas_agree,
                                      .cut = [c = cut](const ParamSpec&) { return c; },
                                      .buffers = buffers,
                                      .separate_sums = order == ReductionOrder::micro_batches}};
    if (dora) o.base = Update::frozen;
    if (dora) o.lora = LoraConfig{.r = 2, .dora = true, .targets = {"all-linear"}};
    return o;
  }
};

std::vector<std::string> calls_of_a_run(Transformer& model, const Schedule& s, std::int64_t micro_batches) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const BatchSize size{.tokens = 8, .positions = 8, .targets = 8};
  Runner runner(model, {{.recompute = {RecomputePolicy::named(s.policy)}}, {{Pass::train, size}}});
  std::vector<std::string> calls;
  NotingRanks ranks(calls, kRanks * s.replicas);
  ShardRanks shards(ranks, model.options().sharding);
  GradientExchange divided(shards, {.order = s.order, .beside = s.buffers > 1, .wire = s.wire},
                           model.params().stores());
  runner.set_access(divided);
  for (const int update : {0, 1}) {  // the second update finds units that the first one left in memory
    calls.clear();
    divided.begin_step(micro_batches);
    for (std::int64_t i = 0; i < micro_batches; ++i) {
      runner.follow(ctx, Pass::train);
      divided.end_micro_batch(ctx);
    }
    divided.finish_step(ctx);
    divided.finish_update(ctx);
    if (s.dora) runner.measure_rows(ctx);
    EXPECT_FALSE(calls.empty()) << update;
  }
  return calls;
}

std::vector<std::string> simulated_calls(Transformer& model, const Schedule& s, std::int64_t micro_batches) {
  const StepExchanges exchanges = step_exchanges(model, {.order = s.order, .wire = s.wire}, kRanks * s.replicas);
  const SimulatedStep step = simulate_step({.stage = s.stage,
                                            .buffers = s.buffers,
                                            .order = s.order,
                                            .beside = s.buffers > 1,
                                            .micro_batches = micro_batches,
                                            .group = RecomputePolicy::named(s.policy).group(),
                                            .gathers_again = s.dora,
                                            .replicates = s.replicas > 1 && !s.replicas_agree},
                                           costs(5, {}, {}));
  std::vector<std::string> calls;
  for (const SimulatedSpan& span : step.spans) {
    if (span.lane != Lane::exchanging || span.unit < 0) continue;
    const StepExchanges::Unit& unit = exchanges.units[static_cast<std::size_t>(span.unit)];
    for (const ExchangeCall& call : unit.of(span.name)) calls.push_back(call.name);
  }
  return calls;
}

// Checks that the simulation executes the same collectives as a real run.
TEST(OverlapSchedule, IsTheOneThatRunsHave) {
  constexpr std::int64_t kMicroBatches = 3;
  using enum ZeroStage;
  for (const Schedule& s :
       {Schedule{optimizer, 2, "none", ReductionOrder::ranks},
        {optimizer, 1, "none", ReductionOrder::ranks},
        {optimizer, 1, "none", ReductionOrder::micro_batches},
        {optimizer, 2, "none", ReductionOrder::micro_batches},
        {gradients, 2, "none", ReductionOrder::ranks},
        {weights, 2, "none", ReductionOrder::ranks},
        {weights, 1, "none", ReductionOrder::ranks},
        {weights, 2, "blocks:2", ReductionOrder::micro_batches},
        {weights, 1, "blocks:2", ReductionOrder::ranks},
        {weights, 2, "blocks:3", ReductionOrder::ranks},
        {optimizer, 2, "none", ReductionOrder::micro_batches, 3},
        {gradients, 2, "none", ReductionOrder::ranks, 2},
        {weights, 2, "none", ReductionOrder::micro_batches, 3},
        {weights, 2, "none", ReductionOrder::ranks, 4},
        {optimizer, 2, "none", ReductionOrder::ranks, 1, Cut::never},
        {weights, 2, "none", ReductionOrder::ranks, 1, Cut::never},
        {optimizer, 2, "none", ReductionOrder::ranks, 2, Cut::never, false, false},
        {weights, 2, "none", ReductionOrder::micro_batches, 2, Cut::never, true, false},
        {weights, 2, "none", ReductionOrder::ranks, 1, Cut::anywhere, true},
        {weights, 1, "blocks:2", ReductionOrder::ranks, 1, Cut::anywhere, true},
        {gradients, 2, "none", ReductionOrder::ranks, 1, Cut::anywhere, true},
        {gradients, 2, "none", ReductionOrder::ranks, 3, Cut::anywhere, false, true, DType::bf16},
        {optimizer, 1, "none", ReductionOrder::micro_batches, 3, Cut::never, false, true, DType::bf16},
        {weights, 2, "none", ReductionOrder::ranks, 2, Cut::never, true, true, DType::bf16}}) {
    Transformer model(Device{}, s.options());
    const auto simulated = simulated_calls(model, s, kMicroBatches);
    EXPECT_EQ(simulated, calls_of_a_run(model, s, kMicroBatches))
        << "stage " << static_cast<int>(s.stage) << ", " << s.buffers << " buffers, " << s.policy << ", " << s.replicas
        << " replicas" << (s.cut == Cut::never ? ", whole matrices" : "") << (s.dora ? ", DoRA" : "") << ", "
        << name_of(s.wire);
    EXPECT_GT(simulated.size(), 6u);
  }
}

}  // namespace
}  // namespace qtrain
