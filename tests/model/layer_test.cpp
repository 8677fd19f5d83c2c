// Layers as tables: in every kind of layer that a family builds, each stage accesses what it declares and nothing else;
// saved and recomputed tensors follow from the tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "model/recompute.h"
#include "tests/model/layer_bench.h"

namespace qtrain::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A kind of layer by the config of its model.
struct Kind {
  const char* name;
  Json config;
};
std::vector<Kind> kinds() {
  return {{"llama", {{"attention_bias", true}, {"mlp_bias", true}}},
          {"qwen3", {{"model_type", "qwen3"}, {"head_dim", 6}}},
          {"gemma2", {{"model_type", "gemma2"}, {"query_pre_attn_scalar", 6}}},
          {"gemma3", {{"model_type", "gemma3_text"}, {"query_pre_attn_scalar", 6}}},
          {"smollm3_without_rotation", {{"model_type", "smollm3"}, {"no_rope_layers", {0, 0}}}},
          {"olmo2", {{"model_type", "olmo2"}}},
          {"olmo3", {{"model_type", "olmo3"}}},
          {"exaone4_some_without_rotation",
           {{"model_type", "exaone4"}, {"layer_types", {"full_attention", "sliding_attention"}}}},
          {"hunyuan", {{"model_type", "hunyuan_v1_dense"}}},
          {"ministral3", {{"model_type", "ministral3"}}},
          {"granite", {{"model_type", "granite"}, {"residual_multiplier", 0.5}}},
          {"phi3", {{"model_type", "phi3"}, {"head_dim", 8}, {"partial_rotary_factor", 0.75}}},
          {"llama_joined", {{"joins_projections", true}, {"attention_bias", true}, {"mlp_bias", true}}},
          {"qwen3_joined", {{"joins_projections", true}, {"model_type", "qwen3"}, {"head_dim", 6}}},
          {"smollm3_joined_without_rotation",
           {{"joins_projections", true}, {"model_type", "smollm3"}, {"no_rope_layers", {0, 0}}}},
          {"llama_fp8", {{"joins_projections", true}, {"finds_largest", true}}},
          {"phi3_fp8", {{"joins_projections", true}, {"finds_largest", true}, {"model_type", "phi3"}, {"head_dim", 8}}},
          {"olmo2_joined", {{"joins_projections", true}, {"model_type", "olmo2"}}},
          {"hunyuan_joined", {{"joins_projections", true}, {"model_type", "hunyuan_v1_dense"}}},
          {"ministral3_joined", {{"joins_projections", true}, {"model_type", "ministral3"}}}};
}

/// The tensors that a stage declares to access.
struct Declared {
  TensorSet reads, writes, adjoint_reads, weight_reads;

  explicit Declared(const Stage& s)
      : reads(s.reads), writes(s.writes), adjoint_reads(s.adjoint_reads), weight_reads(s.weight_reads) {}
};

/// What a stage accesses without declaring it; empty if nothing. Tensors that it must not access have no storage,
/// tensors it must write start as NaN, and tensors it may only read must not change.
std::string forward_violation(const Stage& stage, const Declared& declared, LayerBench& bench) {
  std::vector<Tensor> s = bench.tensors(declared.reads, 0);
  const std::vector<Tensor> written = bench.tensors(declared.writes, kNan);
  each(declared.writes, [&](std::size_t t) { s[t] = written[t]; });
  std::vector<Values> before;
  each(declared.reads, [&](std::size_t t) { before.push_back(values_of(s[t])); });
  LayerRun run = bench.run(s, bench.tensors({}, 0));
  if (const std::string e = message_of([&] { stage.forward(run); }); !e.empty()) return e;
  std::string found;
  std::size_t at = 0;
  each(declared.reads, [&](std::size_t t) {
    if (values_of(s[t]) != before[at++]) found = "changed what it reads";
  });
  each(declared.writes, [&](std::size_t t) {
    if (std::ranges::any_of(values_of(s[t]), [](double x) { return std::isnan(x); }))
      found = "left a part of its result unwritten";
  });
  return found;
}

/// Likewise for the adjoint: it reads the declared activations and the gradients of what the stage wrote, and writes
/// the gradients of what it read.
std::string backward_violation(const Stage& stage, const Declared& declared, LayerBench& bench) {
  TensorSet seen = declared.adjoint_reads;
  if (stage.trains(bench.weights())) seen = seen | declared.weight_reads;
  std::vector<Tensor> d = bench.tensors(declared.writes, 0);
  const std::vector<Tensor> wanted = bench.tensors(declared.reads, kNan);
  each(declared.reads, [&](std::size_t t) { d[t] = wanted[t]; });
  LayerRun run = bench.run(bench.tensors(seen, 0), d);
  if (const std::string e = message_of([&] { stage.backward(run); }); !e.empty()) return e;
  if (stage.name == "add") return "";  // the residual gradient is one buffer that its tensors share
  std::string found;
  each(declared.reads, [&](std::size_t t) {
    if (bench.layer().tensors[t].gradient == HasGradient::no) return;
    if (stage.name == "linear_add" && bench.layer().residual.has(id_of(t))) return;  // likewise
    if (std::ranges::any_of(values_of(d[t]), [](double x) { return std::isnan(x); }))
      found = "left a part of a gradient unwritten";
  });
  return found;
}

class LayerOf : public ::testing::TestWithParam<Kind> {};

TEST_P(LayerOf, StagesTouchOnlyWhatTheyDeclare) {
  for (const Trained t : {Trained::nothing, Trained::adapter, Trained::everything}) {
    LayerBench bench(GetParam().config, t);
    for (const auto& stage : bench.layer().stages) {
      EXPECT_EQ(forward_violation(*stage, Declared(*stage), bench), "") << "forward of " << stage->name;
      EXPECT_EQ(backward_violation(*stage, Declared(*stage), bench), "") << "adjoint of " << stage->name;
    }
  }
}

// Every declaration is needed: if any tensor is removed from it, the stage accesses an undeclared one.
TEST_P(LayerOf, StagesDeclareNothingThatTheyDoNotTouch) {
  LayerBench bench(GetParam().config, Trained::everything);
  const auto without = [&](const Stage& stage, TensorSet Declared::*set, const auto& violation) {
    each(Declared(stage).*set, [&](std::size_t t) {
      Declared less(stage);
      less.*set = less.*set - TensorSet{id_of(t)};
      EXPECT_THAT(violation(stage, less, bench), HasSubstr("no storage"))
          << stage.name << " without " << bench.layer().tensors[t].name;
    });
  };
  for (const auto& stage : bench.layer().stages) {
    without(*stage, &Declared::reads, forward_violation);
    without(*stage, &Declared::writes, forward_violation);
    without(*stage, &Declared::adjoint_reads, backward_violation);
    without(*stage, &Declared::weight_reads, backward_violation);
  }
}

TEST_P(LayerOf, NamesOfTensorsAndParametersAreTheirOwn) {
  const LayerBench bench(GetParam().config, Trained::nothing);
  std::set<std::string> names;
  for (const TensorSpec& t : bench.layer().tensors) EXPECT_TRUE(names.insert(t.name).second) << t.name;
  names.clear();
  for (const VectorSpec& v : bench.layer().vectors) EXPECT_TRUE(names.insert(v.name).second) << v.name;
  for (const LinearSpec& l : bench.layer().linears) EXPECT_TRUE(names.insert(l.module + ".weight").second) << l.module;
}

// Whatever is recomputed: everything a gradient reads is saved, or written by a stage that reruns.
TEST_P(LayerOf, EveryPolicyHasWhatTheAdjointsRead) {
  for (const Trained trained : {Trained::nothing, Trained::adapter, Trained::everything})
    for (const RecomputePolicy& policy : RecomputePolicy::choices(8)) {
      const LayerBench bench(GetParam().config, trained);
      const Layer& layer = bench.layer();
      const RecomputePlan plan = plan_recompute(layer, policy.recomputed(layer), bench.weights());
      TensorSet there = plan.saved;
      for (const int i : plan.rerun) {
        const Stage& stage = *layer.stages[static_cast<std::size_t>(i)];
        EXPECT_TRUE((stage.reads - there).empty()) << stage.name << " under " << policy.name();
        there = there | stage.writes;
      }
      for (const auto& stage : layer.stages) {
        EXPECT_TRUE((stage->adjoint_reads - there).empty()) << stage->name << " under " << policy.name();
        const TensorSet of_weights = stage->trains(bench.weights()) ? stage->weight_reads : TensorSet{};
        EXPECT_TRUE((of_weights - there).empty()) << stage->name << " under " << policy.name();
      }
      EXPECT_TRUE(!policy.whole_blocks() || plan.saved == TensorSet{layer.input});
    }
}

// A gradient is needed from the first adjoint that writes it to that of the stage that wrote the tensor.
TEST_P(LayerOf, IdleGradientsAreNotNeededMeanwhile) {
  const LayerBench bench(GetParam().config, Trained::adapter);
  const Layer& layer = bench.layer();
  TensorSet needed{layer.output};
  for (std::size_t i = layer.stages.size(); i-- > 0;) {
    const Stage& stage = *layer.stages[i];
    needed = needed | stage.reads | stage.writes;
    if (const std::optional<TensorId> idle = idle_gradient(layer, i)) {
      EXPECT_FALSE((needed | layer.residual).has(*idle)) << stage.name << ": " << layer.spec(*idle).name;
      EXPECT_EQ(layer.spec(*idle).gradient, HasGradient::yes);
      EXPECT_EQ(layer.spec(*idle).precision, Precision::activation);
    }
    needed = needed - stage.writes;
  }
}

TEST(IdleGradient, IsTheWidestForLayersWithOneInput) {
  const LayerBench bench(Json::object({{"joins_projections", true}, {"intermediate_size", 256}}), Trained::adapter);
  const Layer& layer = bench.layer();
  std::vector<std::string> idle;
  for (std::size_t i = 0; i < layer.stages.size(); ++i)
    if (layer.stages[i]->name == "linear_add") idle.push_back(layer.spec(idle_gradient(layer, i).value()).name);
  EXPECT_EQ(idle, std::vector<std::string>(2, "mlp.gate_up_proj"));
}

// The input of the next layer is known when a layer is recomputed: of the last projection, only A x is.
TEST(RecomputedLayer, LeavesOutItsResult) {
  LayerBench bench(Json::object({{"joins_projections", true}}), Trained::adapter);
  const Layer& layer = bench.layer();
  const Stage& last = *layer.stages.back();
  ASSERT_EQ(last.name, "linear_add");
  const RecomputePlan plan =
      plan_recompute(layer, RecomputePolicy(RecomputePolicy::Kind::block).recomputed(layer), bench.weights());
  EXPECT_EQ(plan.rerun.back(), static_cast<int>(layer.stages.size()) - 1);
  EXPECT_EQ(plan.unread & last.writes, TensorSet{layer.output});
  const TensorSet ranks = last.writes - TensorSet{layer.output};
  std::vector<Tensor> s = bench.tensors(last.reads - layer.residual, 0);
  const std::vector<Tensor> written = bench.tensors(ranks, kNan);
  each(ranks, [&](std::size_t t) { s[t] = written[t]; });
  LayerRun run = bench.run(s, bench.tensors({}, 0));
  run.unread = plan.unread;
  last.forward(run);
  each(ranks, [&](std::size_t t) {
    EXPECT_TRUE(std::ranges::none_of(values_of(s[t]), [](double x) { return std::isnan(x); }));
  });
  run.unread = {};
  EXPECT_THAT(message_of([&] { last.forward(run); }), HasSubstr("no storage"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, LayerOf, ::testing::ValuesIn(kinds()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace qtrain::testing
