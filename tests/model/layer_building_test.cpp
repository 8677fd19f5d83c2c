// Layers that a builder makes from stages: what it refuses, and what is saved and recomputed under each policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/layer/builder.h"
#include "model/recompute.h"
#include "model/stages/add.h"
#include "model/stages/linear.h"
#include "model/stages/norm.h"
#include "tests/model/layer_bench.h"

namespace qtrain::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A builder's config, and tensors by their names.
class Building : public ::testing::Test {
 protected:
  ModelConfig config_ = layer_config({});
  static std::vector<std::string> names(const Layer& layer, TensorSet set) {
    std::vector<std::string> out;
    each(set, [&](std::size_t t) { out.push_back(layer.tensors[t].name); });
    return out;
  }
  static std::vector<std::string_view> stages(const Layer& layer, const std::vector<int>& which) {
    std::vector<std::string_view> out;
    for (const int i : which) out.push_back(layer.stages[static_cast<std::size_t>(i)]->name);
    return out;
  }
};

TEST_F(Building, RefusesTwoWritersAndUnwrittenReads) {
  LayerBuilder twice(config_, 0);
  const TensorId y = stages::norm(twice, {.x = twice.input(), .name = "a"});
  class Writer final : public Stage {
   public:
    explicit Writer(TensorId t) { writes = {t}; }
    void forward(LayerRun&) const override {}
    void backward(LayerRun&) const override {}
  };
  twice.stage(std::make_unique<Writer>(y));
  const TensorId end = stages::add(twice, twice.input(), y);
  EXPECT_THAT(message_of([&] { twice.finish(end); }), HasSubstr("two writers"));

  LayerBuilder unwritten(config_, 0);
  const TensorId nobody = unwritten.tensor({.name = "nobody", .shape = {kTokens, {.fixed = config_.hidden_size}}});
  const TensorId sum = stages::add(unwritten, unwritten.input(), nobody);
  EXPECT_THAT(message_of([&] { unwritten.finish(sum); }), HasSubstr("nobody wrote"));

  LayerBuilder off_stream(config_, 0);
  const TensorId normed = stages::norm(off_stream, {.x = off_stream.input(), .name = "a"});
  EXPECT_THAT(message_of([&] { off_stream.finish(normed); }), HasSubstr("residual stream"));
}

TEST_F(Building, RefusesTwoTensorsOfOneName) {
  LayerBuilder b(config_, 0);
  stages::norm(b, {.x = b.input(), .name = "a"});
  EXPECT_THAT(message_of([&] { b.tensor({.name = "a", .shape = {kTokens}}); }), HasSubstr("are called a"));
}

TEST_F(Building, AddsFurtherContributionsToAGradient) {
  LayerBench bench({}, Trained::nothing);
  const TensorId a = id_of(1), b = id_of(2);
  LayerRun run = bench.run(bench.tensors({}, 0), bench.tensors({a, b}, 0));
  EXPECT_EQ(run.grad(a).mode, Sink::Mode::store);
  EXPECT_EQ(run.grad(a).mode, Sink::Mode::accumulate);
  EXPECT_EQ(run.grad(b).mode, Sink::Mode::store);
  EXPECT_EQ(run.grad(a).mode, Sink::Mode::accumulate);
}

const std::vector<std::string> kAllSaved{"input",
                                         "input_layernorm",
                                         "input_layernorm.inv_rms",
                                         "self_attn.v_proj",
                                         "self_attn.q_proj.lora",
                                         "self_attn.q_proj.rotated",
                                         "self_attn.k_proj.rotated",
                                         "attention",
                                         "attention.lse",
                                         "self_attn.o_proj.lora",
                                         "self_attn.o_proj.added",
                                         "post_attention_layernorm",
                                         "post_attention_layernorm.inv_rms",
                                         "mlp.gate_proj",
                                         "mlp.up_proj",
                                         "mlp.gate_proj.lora",
                                         "glu",
                                         "mlp.down_proj.lora"};

TEST_F(Building, SavesAllThatAnyAdjointReadsWhenNothingIsRecomputed) {
  const LayerBench bench({}, Trained::everything);
  const RecomputePlan plan = plan_recompute(bench.layer(), {}, bench.weights());
  EXPECT_TRUE(plan.rerun.empty());
  // Results that only the next stage reads need no memory of their own.
  EXPECT_THAT(names(bench.layer(), plan.saved), ::testing::UnorderedElementsAreArray(kAllSaved));
  // Head norms add tensors that their adjoint reads.
  const LayerBench normed({{"model_type", "qwen3"}, {"head_dim", 6}}, Trained::everything);
  std::vector<std::string> more = kAllSaved;
  for (const char* name :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.q_proj.inv_rms", "self_attn.k_proj.inv_rms"})
    more.emplace_back(name);
  EXPECT_THAT(names(normed.layer(), plan_recompute(normed.layer(), {}, normed.weights()).saved),
              ::testing::UnorderedElementsAreArray(more));
}

TEST_F(Building, FrozenWeightsKeepNoActivationsAlive) {
  const LayerBench bench({}, Trained::nothing);
  const auto saved = names(bench.layer(), plan_recompute(bench.layer(), {}, bench.weights()).saved);
  EXPECT_THAT(saved, ::testing::Not(::testing::Contains("input_layernorm")));
  EXPECT_THAT(saved, ::testing::Not(::testing::Contains("glu")));
  EXPECT_THAT(saved, ::testing::IsSupersetOf({"input", "attention", "mlp.gate_proj", "mlp.up_proj"}));
}

TEST_F(Building, SelectiveRepeatsCheapStagesOnly) {
  const LayerBench bench({}, Trained::everything);
  const Layer& layer = bench.layer();
  const RecomputePolicy selective(RecomputePolicy::Kind::selective);
  const RecomputePlan plan = plan_recompute(layer, selective.recomputed(layer), bench.weights());
  EXPECT_THAT(stages(layer, plan.rerun), ElementsAre("norm", "norm", "glu"));
  const auto saved = names(layer, plan.saved);
  for (const char* name : {"input_layernorm", "post_attention_layernorm", "glu"})
    EXPECT_THAT(saved, ::testing::Not(::testing::Contains(name)));
}

TEST_F(Building, BlockSavesTheInputOnlyAndRepeatsInOrder) {
  const LayerBench bench({}, Trained::everything);
  const Layer& layer = bench.layer();
  const RecomputePolicy block(RecomputePolicy::Kind::block);
  const RecomputePlan plan = plan_recompute(layer, block.recomputed(layer), bench.weights());
  EXPECT_TRUE(plan.saved == TensorSet{layer.input});
  EXPECT_TRUE(std::is_sorted(plan.rerun.begin(), plan.rerun.end()));
  // All stages are rerun except the last sum, which is the next block's input. The last projection is, for its adapter.
  EXPECT_EQ(plan.rerun.size(), layer.stages.size() - 1);
}

TEST_F(Building, RerunsNothingForTensorsThatNobodyNeeds) {
  const LayerBench bench({}, Trained::nothing);
  TensorSet drop;
  for (std::size_t t = 0; t < bench.layer().tensors.size(); ++t)
    if (bench.layer().tensors[t].name == "glu") drop.add(id_of(t));
  EXPECT_TRUE(plan_recompute(bench.layer(), drop, bench.weights()).rerun.empty());
}

TEST(RecomputePolicy, ReadsNames) {
  EXPECT_EQ(RecomputePolicy::named("block").group(), 1);
  EXPECT_EQ(RecomputePolicy::named("blocks:12").group(), 12);
  EXPECT_TRUE(RecomputePolicy::named("blocks:12").whole_blocks());
  for (const char* name : {"none", "selective", "block", "blocks:7"})
    EXPECT_EQ(RecomputePolicy::named(name).name(), name);
  for (const char* name :
       {"", "some", "blocks", "blocks:", "blocks:1", "blocks:-2", "blocks:2x", "blocks:99999999999999999999"})
    EXPECT_FALSE(RecomputePolicy::parse(name)) << name;
}

TEST(RecomputePolicy, OffersGroupsAsFarAsTheySave) {
  const auto names = [](std::int64_t layers) {
    std::vector<std::string> out;
    for (const RecomputePolicy& p : RecomputePolicy::choices(layers)) out.push_back(p.name());
    return out;
  };
  EXPECT_THAT(names(1), ElementsAre("none", "selective", "block"));
  EXPECT_THAT(names(28), ElementsAre("none", "selective", "block", "blocks:2", "blocks:4"));
}

}  // namespace
}  // namespace qtrain::testing
