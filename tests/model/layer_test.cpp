// Layers as tables: of every kind that a family makes, each stage touches what it declares and nothing else, and what
// is saved and recomputed follows from the tables.
#include "model/layer/layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <limits>

#include "model/families/family.h"
#include "model/layer/builder.h"
#include "model/recompute.h"
#include "model/stages/add.h"
#include "model/stages/linear.h"
#include "model/stages/norm.h"
#include "tests/kernels/support.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kLayerRows = 7, kRank = 3;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum class Trained { nothing, adapter, everything };

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
          {"granite", {{"model_type", "granite"}, {"residual_multiplier", 0.5}}},
          {"phi3", {{"model_type", "phi3"}, {"head_dim", 8}, {"partial_rotary_factor", 0.75}}}};
}

ModelConfig layer_config(const Json& more) {
  return parse_model_config(small_config(more), "small");
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.text().cause;
  }
  return "";
}

TensorId id_of(std::size_t t) {
  return static_cast<TensorId>(t);
}

/// A layer with random parameters in f64, adapters with dropout on all of its linear layers, and memory for tensors.
class Bench {
 public:
  Bench(const Json& more, Trained trained) : config_(layer_config(more)), trained_(trained), layer_(make_layer()) {
    for (const VectorSpec& v : layer_.vectors) weights_.vectors.push_back({keep({v.size}), base({v.size})});
    for (const LinearSpec& l : layer_.linears) weights_.linears.push_back(linear(l));
    tokens_ = {.positions = positions_,
               .cu_seqlens = starts_,
               .rotary = {{cos_.tensor(), sin_.tensor()}, {cos_.tensor(), sin_.tensor()}},
               .dropout_seed = seed_.tensor()};
    *seed_.tensor().as<std::int64_t>() = 5;
  }

  const Layer& layer() const { return layer_; }
  const LayerWeights& weights() const { return weights_; }
  LayerRun run(std::vector<Tensor> s, std::vector<Tensor> d) {
    s_ = std::move(s);
    d_ = std::move(d);
    return {.ctx = ctx_,
            .w = weights_,
            .tokens = tokens_,
            .s = s_,
            .d = d_,
            .scratch = scratch_.tensor(),
            .dense = {},
            .touched = {}};
  }
  Shape shape(TensorId t) const {
    for (const LinearGroup& group : layer_.groups)
      if (group.lora == t) return {kLayerRows, kRank * static_cast<std::int64_t>(group.layers.size())};
    return layer_.spec(t).shape_for(kLayerRows);
  }
  /// Memory for every tensor in `with`; the others have their shape and no storage, so that touching them is an error.
  std::vector<Tensor> tensors(TensorSet with, double value) {
    std::vector<Tensor> out;
    for (std::size_t t = 0; t < layer_.tensors.size(); ++t) {
      out.push_back({nullptr, DType::f64, shape(id_of(t)), {}});
      if (with.has(id_of(t))) out.back() = filled(shape(id_of(t)), value);
    }
    return out;
  }

 private:
  Layer make_layer() const { return std::move(make_layers(config_).front()); }
  Tensor filled(Shape shape, double value) {
    const Tensor t = keep(shape);
    if (std::isnan(value)) std::fill_n(t.as<double>(), t.numel(), value);
    return t;
  }
  Tensor keep(Shape shape) {
    arrays_.push_back(random(DType::f64, shape, ++salt_));
    return arrays_.back().tensor();
  }
  Sink base(Shape shape) { return trained_ == Trained::everything ? accumulate(keep(shape)) : discard(); }
  Projection linear(const LinearSpec& l) {
    const Shape w{l.out, l.in};
    Projection p{.weight = keep(w), .bias = keep({l.out}), .dweight = base(w), .dbias = base({l.out})};
    const auto sink = [&](Shape s) { return trained_ == Trained::nothing ? discard() : accumulate(keep(s)); };
    p.lora = {.a = keep({kRank, l.in}),
              .b = keep({l.out, kRank}),
              .da = sink({kRank, l.in}),
              .db = sink({l.out, kRank}),
              .scale = 0.5,
              .dropout = 0.25,
              .stream = ++salt_};
    return p;
  }

  ModelConfig config_;
  Trained trained_;
  Layer layer_;
  std::uint64_t salt_ = 0;
  Ctx ctx_{{}, MatmulPrecision::storage, 1};
  std::deque<Array> arrays_;
  Array positions_ = integers({0, 1, 2, 3, 0, 1, 2}), starts_ = integers({0, 4, 7});
  Shape table_{4, config_.ropes.front().dims(config_.head_dim) / 2};
  Array cos_ = random(DType::f64, table_, 901), sin_ = random(DType::f64, table_, 902);
  Array seed_{DType::i64, {1}}, scratch_{DType::f64, {kLayerRows * (3 * kRank + 64)}};
  LayerWeights weights_;
  TokenContext tokens_;
  std::vector<Tensor> s_, d_;
};

/// What a stage says that it touches.
struct Declared {
  TensorSet reads, writes, adjoint_reads, weight_reads;

  explicit Declared(const Stage& s)
      : reads(s.reads), writes(s.writes), adjoint_reads(s.adjoint_reads), weight_reads(s.weight_reads) {}
};

template <class Act>
void each(TensorSet set, Act&& act) {
  for (std::size_t t = 0; t < TensorSet::kCapacity; ++t)
    if (set.has(id_of(t))) act(t);
}

/// What a stage does that its declaration does not say; empty if nothing. Tensors that it may not touch have no
/// storage, what it must write begins as NaN, and what it may only read must stay as it was.
std::string forward_violation(const Stage& stage, const Declared& declared, Bench& bench) {
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

/// The same for the adjoint: it sees the declared activations, the gradients of what the stage wrote, and writes the
/// gradients of what it read.
std::string backward_violation(const Stage& stage, const Declared& declared, Bench& bench) {
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
    if (std::ranges::any_of(values_of(d[t]), [](double x) { return std::isnan(x); }))
      found = "left a part of a gradient unwritten";
  });
  return found;
}

class LayerOf : public ::testing::TestWithParam<Kind> {};

TEST_P(LayerOf, StagesTouchOnlyWhatTheyDeclare) {
  for (const Trained t : {Trained::nothing, Trained::adapter, Trained::everything}) {
    Bench bench(GetParam().config, t);
    for (const auto& stage : bench.layer().stages) {
      EXPECT_EQ(forward_violation(*stage, Declared(*stage), bench), "") << "forward of " << stage->name;
      EXPECT_EQ(backward_violation(*stage, Declared(*stage), bench), "") << "adjoint of " << stage->name;
    }
  }
}

// Every declaration is needed: with any tensor of it taken away, the stage touches one that it does not name.
TEST_P(LayerOf, StagesDeclareNothingThatTheyDoNotTouch) {
  Bench bench(GetParam().config, Trained::everything);
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
  const Bench bench(GetParam().config, Trained::nothing);
  std::set<std::string> names;
  for (const TensorSpec& t : bench.layer().tensors) EXPECT_TRUE(names.insert(t.name).second) << t.name;
  names.clear();
  for (const VectorSpec& v : bench.layer().vectors) EXPECT_TRUE(names.insert(v.name).second) << v.name;
  for (const LinearSpec& l : bench.layer().linears) EXPECT_TRUE(names.insert(l.module + ".weight").second) << l.module;
}

// Whatever is recomputed: what a gradient reads is saved, or written by a stage that runs again.
TEST_P(LayerOf, EveryPolicyHasWhatTheAdjointsRead) {
  for (const Trained trained : {Trained::nothing, Trained::adapter, Trained::everything})
    for (const RecomputePolicy& policy : RecomputePolicy::choices(8)) {
      const Bench bench(GetParam().config, trained);
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

INSTANTIATE_TEST_SUITE_P(Kinds, LayerOf, ::testing::ValuesIn(kinds()),
                         [](const auto& info) { return std::string(info.param.name); });

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
  Bench bench({}, Trained::nothing);
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
  const Bench bench({}, Trained::everything);
  const RecomputePlan plan = plan_recompute(bench.layer(), {}, bench.weights());
  EXPECT_TRUE(plan.rerun.empty());
  // Results that only the next stage reads need no memory of their own.
  EXPECT_THAT(names(bench.layer(), plan.saved), ::testing::UnorderedElementsAreArray(kAllSaved));
  // Head norms add what their adjoint reads.
  const Bench normed({{"model_type", "qwen3"}, {"head_dim", 6}}, Trained::everything);
  std::vector<std::string> more = kAllSaved;
  for (const char* name :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.q_proj.inv_rms", "self_attn.k_proj.inv_rms"})
    more.emplace_back(name);
  EXPECT_THAT(names(normed.layer(), plan_recompute(normed.layer(), {}, normed.weights()).saved),
              ::testing::UnorderedElementsAreArray(more));
}

TEST_F(Building, FrozenWeightsKeepNoActivationsAlive) {
  const Bench bench({}, Trained::nothing);
  const auto saved = names(bench.layer(), plan_recompute(bench.layer(), {}, bench.weights()).saved);
  EXPECT_THAT(saved, ::testing::Not(::testing::Contains("input_layernorm")));
  EXPECT_THAT(saved, ::testing::Not(::testing::Contains("glu")));
  EXPECT_THAT(saved, ::testing::IsSupersetOf({"input", "attention", "mlp.gate_proj", "mlp.up_proj"}));
}

TEST_F(Building, SelectiveRepeatsCheapStagesOnly) {
  const Bench bench({}, Trained::everything);
  const Layer& layer = bench.layer();
  const RecomputePolicy selective(RecomputePolicy::Kind::selective);
  const RecomputePlan plan = plan_recompute(layer, selective.recomputed(layer), bench.weights());
  EXPECT_THAT(stages(layer, plan.rerun), ElementsAre("norm", "norm", "glu"));
  const auto saved = names(layer, plan.saved);
  for (const char* name : {"input_layernorm", "post_attention_layernorm", "glu"})
    EXPECT_THAT(saved, ::testing::Not(::testing::Contains(name)));
}

TEST_F(Building, BlockSavesTheInputOnlyAndRepeatsInOrder) {
  const Bench bench({}, Trained::everything);
  const Layer& layer = bench.layer();
  const RecomputePolicy block(RecomputePolicy::Kind::block);
  const RecomputePlan plan = plan_recompute(layer, block.recomputed(layer), bench.weights());
  EXPECT_TRUE(plan.saved == TensorSet{layer.input});
  EXPECT_TRUE(std::is_sorted(plan.rerun.begin(), plan.rerun.end()));
  // All but the last sum, whose result is the next block's input; the last projection for its adapter's part.
  EXPECT_EQ(plan.rerun.size(), layer.stages.size() - 1);
}

TEST_F(Building, RerunsNothingForTensorsThatNobodyNeeds) {
  const Bench bench({}, Trained::nothing);
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
