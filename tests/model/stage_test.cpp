#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <limits>

#include "model/recompute.h"
#include "model/stages.h"
#include "tests/kernels/support.h"

namespace qtrain::testing {
namespace {

using ::testing::HasSubstr;
constexpr std::span<const Stage> kBlock{kDecoderBlock<attention_stage>};
constexpr std::int64_t kTokens = 7, kHidden = 12, kInner = 10, kHeads = 4, kKvHeads = 2, kHeadDim = 6, kRank = 3;

enum class Trained { nothing, adapter, everything };

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.text().cause;
  }
  return "";
}

Shape shape_of(Slot s) {
  switch (s) {
    case rms1:
    case rms2: return {kTokens};
    case q_rms: return {kTokens, kHeads};
    case k_rms: return {kTokens, kKvHeads};
    case lse: return {kHeads, kTokens};
    case q:
    case q_rot:
    case att: return {kTokens, kHeads * kHeadDim};
    case k:
    case k_rot:
    case v: return {kTokens, kKvHeads * kHeadDim};
    case gate:
    case up:
    case act: return {kTokens, kInner};
    case lora_qkv: return {kTokens, 3 * kRank};
    case lora_gate_up: return {kTokens, 2 * kRank};
    case lora_o:
    case lora_down: return {kTokens, kRank};
    default: return {kTokens, kHidden};
  }
}

/// One block with everything that a family can have: biases, head norms, adapters with dropout. f64.
class Block {
 public:
  explicit Block(Trained trained) : trained_(trained) {
    weights_.norm1 = {keep({kHidden}), base({kHidden})};
    weights_.norm2 = {keep({kHidden}), base({kHidden})};
    weights_.q_norm = {keep({kHeadDim}), base({kHeadDim})};
    weights_.k_norm = {keep({kHeadDim}), base({kHeadDim})};
    constexpr std::int64_t kQ = kHeads * kHeadDim, kKv = kKvHeads * kHeadDim;
    weights_.q = linear({kQ, kHidden});
    weights_.k = linear({kKv, kHidden});
    weights_.v = linear({kKv, kHidden});
    weights_.o = linear({kHidden, kQ});
    weights_.gate = linear({kInner, kHidden});
    weights_.up = linear({kInner, kHidden});
    weights_.down = linear({kHidden, kInner});
    tokens_ = {
        .positions = positions_, .cu_seqlens = starts_, .cos = cos_, .sin = sin_, .dropout_seed = seed_.tensor()};
    std::copy_n(std::array<std::int64_t, 1>{5}.begin(), 1, seed_.tensor().as<std::int64_t>());
  }

  const BlockWeights& weights() const { return weights_; }
  BlockRun run(Slots s, Slots d) {
    return {.ctx = ctx_,
            .w = weights_,
            .tokens = tokens_,
            .s = s_ = s,
            .d = d_ = d,
            .scratch = scratch_.tensor(),
            .touched = {},
            .eps = 1e-5,
            .window = 4};
  }
  /// Memory for every slot in `with`; the others have their shape and no storage, so that touching them is an error.
  Slots slots(SlotSet with, double value) {
    Slots out;
    for (int i = 0; i < kSlots; ++i) {
      const auto slot = static_cast<Slot>(i);
      out[slot] = {nullptr, DType::f64, shape_of(slot), {}};
      if (!with.has(slot)) continue;
      arrays_.push_back(std::isnan(value) ? Array(DType::f64, shape_of(slot))
                                          : random(DType::f64, shape_of(slot), ++salt_));
      if (std::isnan(value)) std::fill_n(arrays_.back().tensor().as<double>(), arrays_.back().size(), value);
      out[slot] = arrays_.back().tensor();
    }
    return out;
  }

 private:
  Tensor keep(Shape shape) {
    arrays_.push_back(random(DType::f64, shape, ++salt_));
    return arrays_.back().tensor();
  }
  Sink base(Shape shape) { return trained_ == Trained::everything ? accumulate(keep(shape)) : discard(); }
  Projection linear(Shape w) {
    Projection p{.weight = keep(w), .bias = keep({w[0]}), .dweight = base(w), .dbias = base({w[0]})};
    const auto sink = [&](Shape s) { return trained_ == Trained::nothing ? discard() : accumulate(keep(s)); };
    p.lora = {.a = keep({kRank, w[1]}),
              .b = keep({w[0], kRank}),
              .da = sink({kRank, w[1]}),
              .db = sink({w[0], kRank}),
              .scale = 0.5,
              .dropout = 0.25,
              .stream = ++salt_};
    return p;
  }

  Trained trained_;
  std::uint64_t salt_ = 0;
  Ctx ctx_{{}, MatmulPrecision::storage, 1};
  std::deque<Array> arrays_;
  Array positions_ = integers({0, 1, 2, 3, 0, 1, 2}), starts_ = integers({0, 4, 7});
  Array cos_ = random(DType::f64, {4, kHeadDim / 2}, 901), sin_ = random(DType::f64, {4, kHeadDim / 2}, 902);
  Array seed_{DType::i64, {1}}, scratch_{DType::f64, {kTokens * (3 * kRank + kHeads * kHeadDim)}};
  BlockWeights weights_;
  TokenContext tokens_;
  Slots s_, d_;
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

SlotSet both(SlotSet a, SlotSet b) {
  return a | b;
}

/// What a stage does that its declaration does not say; empty if nothing. Slots that it may not touch have no storage,
/// what it must write begins as NaN, and what it may only read must stay as it was.
std::string forward_violation(const Stage& stage, Block& block) {
  Slots s = block.slots(stage.reads, 0);
  const Slots written = block.slots(stage.writes, kNan);
  for (int i = 0; i < kSlots; ++i)
    if (stage.writes.has(static_cast<Slot>(i))) s[static_cast<Slot>(i)] = written[static_cast<Slot>(i)];
  std::vector<std::vector<double>> before;
  const auto contents = [&](Slot slot) {
    return std::vector<double>(s[slot].span<double>().begin(), s[slot].span<double>().end());
  };
  for (int i = 0; i < kSlots; ++i)
    if (stage.reads.has(static_cast<Slot>(i))) before.push_back(contents(static_cast<Slot>(i)));
  BlockRun run = block.run(s, block.slots({}, 0));
  if (const std::string e = message_of([&] { stage.forward(run); }); !e.empty()) return e;
  std::size_t at = 0;
  for (int i = 0; i < kSlots; ++i) {
    const auto slot = static_cast<Slot>(i);
    if (stage.reads.has(slot) && contents(slot) != before[at++]) return "changed what it reads";
    if (!stage.writes.has(slot)) continue;
    for (const double x : contents(slot))
      if (std::isnan(x)) return "left a part of its result unwritten";
  }
  return "";
}

/// The same for the adjoint: it sees the declared activations, the gradients of what the stage wrote, and writes the
/// gradients of what it read.
std::string backward_violation(const Stage& stage, Block& block) {
  const bool trains = stage.trains(block.weights());
  const SlotSet seen = trains ? both(stage.adjoint_reads, stage.weight_reads) : stage.adjoint_reads;
  const Slots s = block.slots(seen, 0);
  Slots d = block.slots(stage.writes, 0);
  const Slots wanted = block.slots(stage.reads, kNan);
  for (int i = 0; i < kSlots; ++i)
    if (stage.reads.has(static_cast<Slot>(i))) d[static_cast<Slot>(i)] = wanted[static_cast<Slot>(i)];
  BlockRun run = block.run(s, d);
  if (const std::string e = message_of([&] { stage.backward(run); }); !e.empty()) return e;
  if (stage.name == "add") return "";  // the residual gradient is one buffer that its slots share
  for (int i = 0; i < kSlots; ++i) {
    if (!stage.reads.has(static_cast<Slot>(i))) continue;
    for (const double x : d[static_cast<Slot>(i)].span<double>())
      if (std::isnan(x)) return "left a part of a gradient unwritten";
  }
  return "";
}

TEST(Stages, TouchOnlyWhatTheyDeclare) {
  for (const Trained t : {Trained::nothing, Trained::adapter, Trained::everything}) {
    Block block(t);
    for (std::size_t i = 0; i < kBlock.size(); ++i) {
      EXPECT_EQ(forward_violation(kBlock[i], block), "") << "forward of stage " << i << ", " << kBlock[i].name;
      EXPECT_EQ(backward_violation(kBlock[i], block), "") << "adjoint of stage " << i << ", " << kBlock[i].name;
    }
  }
}

// Every declaration is needed: with any slot of it taken away, the stage touches a slot that it does not name.
TEST(Stages, DeclareNothingThatTheyDoNotTouch) {
  Block block(Trained::everything);
  for (std::size_t i = 0; i < kBlock.size(); ++i)
    for (int j = 0; j < kSlots; ++j) {
      const SlotSet one{static_cast<Slot>(j)};
      SCOPED_TRACE(std::string(kBlock[i].name) + " " + std::to_string(i) + ", slot " + std::to_string(j));
      for (const auto set : {&Stage::reads, &Stage::writes}) {
        Stage broken = kBlock[i];
        if (((broken.*set) & one).empty()) continue;
        broken.*set = broken.*set - one;
        EXPECT_THAT(forward_violation(broken, block), HasSubstr("no storage"));
      }
      for (const auto set : {&Stage::adjoint_reads, &Stage::weight_reads}) {
        Stage broken = kBlock[i];
        if (((broken.*set) & one).empty()) continue;
        broken.*set = broken.*set - one;
        EXPECT_THAT(backward_violation(broken, block), HasSubstr("no storage"));
      }
    }
}

TEST(PlanRecompute, RefusesTwoWritersAndUnwrittenReads) {
  const Block block(Trained::everything);
  std::vector<Stage> twice(kBlock.begin(), kBlock.end());
  twice[1].writes = twice[1].writes | SlotSet{norm1};
  EXPECT_THAT(message_of([&] { plan_recompute(twice, {}, block.weights()); }), HasSubstr("two writers"));
  const std::vector<Stage> headless(kBlock.begin() + 1, kBlock.end());
  EXPECT_THAT(message_of([&] { plan_recompute(headless, {}, block.weights()); }), HasSubstr("nobody wrote"));
  std::vector<Stage> late(kBlock.begin(), kBlock.end());
  std::swap(late[8], late[9]);  // swiglu before the up projection
  EXPECT_THAT(message_of([&] { plan_recompute(late, {}, block.weights()); }), HasSubstr("nobody wrote"));
}

TEST(BlockRun, AddsFurtherContributionsToAGradient) {
  Block block(Trained::nothing);
  BlockRun run = block.run(block.slots({}, 0), block.slots({norm1, gate}, 0));
  EXPECT_EQ(run.grad(norm1).mode, Sink::Mode::store);
  EXPECT_EQ(run.grad(norm1).mode, Sink::Mode::accumulate);
  EXPECT_EQ(run.grad(gate).mode, Sink::Mode::store);
  EXPECT_EQ(run.grad(norm1).mode, Sink::Mode::accumulate);
}

constexpr Stage kApart[] = {linear_stage<norm1, lora_o, Linear<q, &BlockWeights::q>>,
                            linear_stage<norm1, lora_o, Linear<k, &BlockWeights::k>>,
                            linear_stage<norm1, lora_o, Linear<v, &BlockWeights::v>>};

// norm1 feeds three projections: a stage that forgets that others contribute loses two thirds of its gradient.
TEST(BlockRun, LosesNoFanOut) {
  Block block(Trained::nothing);
  const Slots s = block.slots({norm1}, 0);
  const auto gradient = [&](std::vector<Stage> stages, SlotSet incoming) {
    Slots d = block.slots({q, k, v}, 0);
    for (const Slot slot : {q, k, v}) {
      const Array fixed = random(DType::f64, shape_of(slot), 400 + static_cast<std::uint64_t>(slot));
      for (std::int64_t i = 0; i < fixed.size(); ++i) d[slot].as<double>()[i] = incoming.has(slot) ? fixed.get(i) : 0;
    }
    d[norm1] = block.slots({norm1}, kNan)[norm1];
    BlockRun run = block.run(s, d);
    run_backward(stages, {}, run);
    return std::vector<double>(d[norm1].span<double>().begin(), d[norm1].span<double>().end());
  };
  const std::vector<Stage> right(std::begin(kApart), std::end(kApart));
  const auto all = gradient(right, {q, k, v});
  const auto of_q = gradient(right, {q}), of_k = gradient(right, {k}), of_v = gradient(right, {v});
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], of_q[i] + of_k[i] + of_v[i], 1e-12);

  std::vector<Stage> forgetful = right;
  forgetful[0].backward = [](BlockRun& r) {
    r.touched = {};
    kApart[0].backward(r);
  };
  EXPECT_NE(gradient(forgetful, {q, k, v}), all);
  EXPECT_EQ(gradient(forgetful, {q, k, v}), of_q);
}

std::vector<std::string_view> names_of(const std::vector<int>& stages) {
  std::vector<std::string_view> names;
  for (const int i : stages) names.push_back(kBlock[static_cast<std::size_t>(i)].name);
  return names;
}

SlotSet policy(std::string_view name) {
  return recompute_policy(name).value().drop;
}

/// Weights of a block as shapes only, to plan with.
class Shapes {
 public:
  static BlockWeights full() {
    return weights({.q = true, .k = true, .v = true, .rest = true}, Sink::Mode::accumulate);
  }
  static BlockWeights frozen() { return weights({}, Sink::Mode::discard); }
  static BlockWeights adapter_on_q_and_v() { return weights({.q = true, .v = true}, Sink::Mode::discard); }

 private:
  struct On {
    bool q = false, k = false, v = false, rest = false;
  };
  static Projection linear(bool adapter, Sink::Mode base) {
    Projection p{.dweight = {{}, base}};
    if (adapter) p.lora = {.a = {nullptr, DType::f32, {2, 2}, {}}, .da = accumulate({}), .db = accumulate({})};
    return p;
  }
  static BlockWeights weights(On on, Sink::Mode base) {
    const NormWeight norm{.weight = {nullptr, DType::f32, {2}, {}}, .grad = {{}, base}};
    return {.norm1 = norm,
            .norm2 = norm,
            .q = linear(on.q, base),
            .k = linear(on.k, base),
            .v = linear(on.v, base),
            .o = linear(on.rest, base),
            .gate = linear(on.rest, base),
            .up = linear(on.rest, base),
            .down = linear(on.rest, base)};
  }
};

TEST(PlanRecompute, KeepsAllThatAnyAdjointReadsWhenNothingIsDropped) {
  const RecomputePlan plan = plan_recompute(kBlock, policy("none"), Shapes::full());
  EXPECT_TRUE(plan.rerun.empty());
  const SlotSet expected{x,     norm1, rms1, q_rot, k_rot, v,        att,    lse,          mid,
                         norm2, rms2,  gate, up,    act,   lora_qkv, lora_o, lora_gate_up, lora_down};
  EXPECT_TRUE(plan.stash == expected);
  // Results that only the next stage reads need no memory of their own; head norms add what their adjoint reads.
  BlockWeights with_head_norms = Shapes::full();
  with_head_norms.q_norm = with_head_norms.k_norm = with_head_norms.norm1;
  EXPECT_TRUE(plan_recompute(kBlock, {}, with_head_norms).stash == (expected | SlotSet{q, k, q_rms, k_rms}));
}

TEST(PlanRecompute, FrozenWeightsPinNoActivations) {
  const SlotSet stash = plan_recompute(kBlock, policy("none"), Shapes::adapter_on_q_and_v()).stash;
  EXPECT_TRUE(stash == (SlotSet{x, norm1, rms1, q_rot, k_rot, v, att, lse, mid, rms2, gate, up, lora_qkv}));
  EXPECT_FALSE(stash.has(act));
  EXPECT_FALSE(stash.has(norm2));
  EXPECT_FALSE(plan_recompute(kBlock, policy("none"), Shapes::frozen()).stash.has(norm1));
}

TEST(PlanRecompute, SelectiveRepeatsCheapStagesOnly) {
  const RecomputePlan plan = plan_recompute(kBlock, policy("selective"), Shapes::full());
  EXPECT_THAT(names_of(plan.rerun), ::testing::ElementsAre("norm", "norm", "swiglu"));
  EXPECT_TRUE((plan.stash & SlotSet{norm1, norm2, act}).empty());
  EXPECT_TRUE((SlotSet{x, mid, gate, up, q_rot, k_rot, v, att, lse} - plan.stash).empty());
}

TEST(PlanRecompute, BlockKeepsTheInputOnlyAndRepeatsInOrder) {
  const RecomputePlan plan = plan_recompute(kBlock, policy("block"), Shapes::full());
  EXPECT_TRUE(plan.stash == SlotSet{x});
  EXPECT_TRUE(std::is_sorted(plan.rerun.begin(), plan.rerun.end()));
  // All but the last sum, whose result is the next block's input; the last projection for its adapter's part.
  EXPECT_EQ(plan.rerun.size(), kBlock.size() - 1);
}

TEST(RecomputePolicy, ReadsNames) {
  EXPECT_EQ(recompute_policy("block")->group, 1);
  EXPECT_EQ(recompute_policy("blocks:12")->group, 12);
  EXPECT_TRUE(recompute_policy("blocks:12")->drop == policy("block"));
  for (const char* name :
       {"", "some", "blocks", "blocks:", "blocks:1", "blocks:-2", "blocks:2x", "blocks:99999999999999999999"})
    EXPECT_FALSE(recompute_policy(name)) << name;
}

TEST(RecomputePolicy, OffersGroupsAsFarAsTheySave) {
  using ::testing::ElementsAre;
  EXPECT_THAT(recompute_policies(1), ElementsAre("none", "selective", "block"));
  EXPECT_THAT(recompute_policies(28), ElementsAre("none", "selective", "block", "blocks:2", "blocks:4"));
}

TEST(PlanRecompute, RerunsNothingForSlotsThatNobodyNeeds) {
  const RecomputePlan plan = plan_recompute(kBlock, SlotSet{act, norm2}, Shapes::adapter_on_q_and_v());
  EXPECT_TRUE(plan.rerun.empty());
}

TEST(PlanRecompute, FollowsDependenciesOfWhatItRepeats) {
  // act needs gate and up, which need norm2, which needs mid; all dropped, so all are repeated from what is left.
  const RecomputePlan plan = plan_recompute(kBlock, SlotSet{act, gate, up, norm2, rms2}, Shapes::full());
  EXPECT_THAT(names_of(plan.rerun), ::testing::ElementsAre("norm", "linear", "swiglu"));
  EXPECT_TRUE(plan.stash.has(mid));
}

}  // namespace
}  // namespace qtrain::testing
