#include "model/runner.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/core/temp_folder.h"
#include "tests/model/random_model.h"

namespace qtrain::testing {
namespace {

using ::testing::HasSubstr;

TransformerOptions small_options(const Json& more = Json::object()) {
  return {.config = parse_model_config(small_config(more), "small"), .activation_dtype = DType::f64};
}

// Whole groups, a shorter last group, and a group longer than the model.
TEST(Transformer, GroupsOfBlocksGiveTheSameBits) {
  const Ragged batch(small_rows());
  for (const int layers : {4, 5, 7}) {
    TransformerOptions options = small_options({{"num_hidden_layers", layers}});
    const auto step = [&](const std::string& policy) {
      Ctx ctx({}, MatmulPrecision::storage, 1);
      const auto model = random_model(ctx, options, batch, recomputing(policy));
      return train_step(ctx, *model, {batch}, {});
    };
    const Outcome reference = step("none");
    for (const char* policy : {"blocks:2", "blocks:3", "blocks:4", "blocks:9"})
      EXPECT_TRUE(step(policy) == reference) << policy << " of " << layers;
  }
}

// On a CPU, copies are synchronous: this tests where they come from and go to.
TEST(Transformer, InputsThatWaitOnTheHostGiveTheSameBits) {
  const Ragged batch(small_rows());
  for (const int layers : {1, 2, 3, 6, 7}) {
    TransformerOptions options = small_options({{"num_hidden_layers", layers}});
    const auto step = [&](const std::string& policy, BlockInputs inputs) {
      Ctx ctx({}, MatmulPrecision::storage, 1);
      const auto model = random_model(ctx, options, batch, recomputing(policy, inputs));
      return train_step(ctx, *model, {batch, batch}, {});
    };
    const Outcome reference = step("none", BlockInputs::device);
    for (const char* policy : {"block", "blocks:2", "blocks:3"})
      EXPECT_TRUE(step(policy, BlockInputs::host) == reference) << policy << " of " << layers;
  }
}

TEST(Transformer, InputsThatWaitOnTheHostLeaveTwoOnTheDevice) {
  const BatchSize size{.tokens = 64, .positions = 64, .targets = 8};
  TransformerOptions options = small_options({{"num_hidden_layers", 8}});
  Transformer model(Device{}, options);
  const auto bytes = [&](BlockInputs inputs) {
    return Runner::measure(model, {recomputing("block", inputs), {{Pass::train, size}}}).activations;
  };
  const ActivationBytes kept = bytes(BlockInputs::device), sent = bytes(BlockInputs::host);
  const std::size_t input = 64 * options.config.hidden_size * sizeof(double);
  EXPECT_EQ(kept.total - sent.total, 6 * input);
  EXPECT_EQ(sent.pinned, 8 * input);
  EXPECT_EQ(kept.pinned, 0u);
  EXPECT_EQ(error_of([&] { Runner(model, {recomputing("selective", BlockInputs::host)}); }).kind(), ErrorKind::usage);
}

TEST(Transformer, ForgetsTheLastBatch) {
  // Memory is reused and gradients accumulate, but a batch after another one gives the same results as alone.
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const auto rows = small_rows();
  const Ragged all(rows), one({rows[2]});
  const auto model = random_model(ctx, small_options(), all);
  const Outcome alone = train_step(ctx, *model, {one}, {});
  train_step(ctx, *model, {all}, {});
  EXPECT_TRUE(train_step(ctx, *model, {one}, {}) == alone);
  const Outcome twice = train_step(ctx, *model, {one, one}, {});
  for (const auto& [name, g] : alone.grads)
    for (std::size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(twice.grads.at(name)[i], 2 * g[i], 1e-12) << name;
}

TEST(Transformer, GradientsAreProportionalToTheScale) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(small_rows());
  const auto model = random_model(ctx, small_options(), batch);
  const Outcome one = train_step(ctx, *model, {batch}, {.scale = 1}),
                half = train_step(ctx, *model, {batch}, {.scale = 0.5});
  EXPECT_EQ(half.loss_sum, one.loss_sum);
  for (const auto& [name, g] : one.grads)
    for (std::size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(half.grads.at(name)[i], 0.5 * g[i], 1e-14) << name;
}

// transformers makes the embedding with padding_idx = pad_token_id: the input does not train that row, but a tied head
// does.
TEST(Transformer, ThePaddingRowOfTheEmbeddingIsNotLearnedFromTheInput) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(small_rows());
  const std::string table = "model.embed_tokens.weight";
  for (const bool tied : {false, true}) {
    const auto step = [&](const Json& pad) {
      const Json config{{"tie_word_embeddings", tied}, {"pad_token_id", pad}};
      return train_step(ctx, *random_model(ctx, small_options(config), batch), {batch}, {});
    };
    Outcome all = step(nullptr), padded = step(7), other = step(20);
    EXPECT_TRUE(other == all) << "token 20 is in no row";
    for (std::size_t i = 0; i < 12; ++i) {
      const std::size_t at = 7 * 12 + i;
      EXPECT_NE(padded.grads.at(table)[at], all.grads.at(table)[at]);
      EXPECT_EQ(padded.grads.at(table)[at] == 0, !tied);
      all.grads.at(table)[at] = padded.grads.at(table)[at];
    }
    EXPECT_TRUE(padded == all) << "nothing else changes";
  }
}

TEST(Transformer, ThePaddingRowOfTheEmbeddingStartsAtZero) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(small_rows());
  const auto zero_rows = [&](const Json& pad) {
    const auto model = planned_model(ctx, small_options({{"pad_token_id", pad}}), batch.size());
    model->runner.initialize_weights(ctx, 1);
    const Values table = values_of(model->weights().find("model.embed_tokens.weight")->value);
    std::vector<std::size_t> zero;
    for (std::size_t row = 0; row < 29; ++row)
      if (std::count(table.begin() + row * 12, table.begin() + (row + 1) * 12, 0.0) == 12) zero.push_back(row);
    return zero;
  };
  EXPECT_THAT(zero_rows(nullptr), ::testing::IsEmpty());
  EXPECT_THAT(zero_rows(7), ::testing::ElementsAre(7));
  EXPECT_THAT(zero_rows(-1), ::testing::ElementsAre(28));
}

TEST(Transformer, ABatchWithoutTargetsCostsNothing) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch({small_rows()[3], small_rows()[1]});
  const auto model = random_model(ctx, small_options(), batch);
  const Outcome out = train_step(ctx, *model, {batch}, {});
  EXPECT_EQ(out.loss_sum, 0);
  EXPECT_EQ(out.grad_norm(), 0);
  EXPECT_EQ(loss_of(ctx, *model, batch.batch()), 0);
}

TEST(Transformer, RowsDoNotSeeEachOther) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  auto rows = small_rows();
  const auto model = random_model(ctx, small_options(), Ragged(rows));
  const Ragged alone({rows[2]}), before({rows[0], rows[2]}), first({rows[0]});
  const double together = loss_of(ctx, *model, before.batch());
  EXPECT_NEAR(together, loss_of(ctx, *model, alone.batch()) + loss_of(ctx, *model, first.batch()), 1e-12);
}

/// Records the units that a pass enters.
struct RecordedAccess : UnitAccess {
  explicit RecordedAccess(PlannedModel& of) : model(of) { of.runner.set_access(*this); }
  void enter(Ctx&, const Entry& e) override {
    calls.push_back((e.gradients == Gradients::yes ? "with gradients " : "enter ") + std::to_string(e.unit));
    entered.push_back(e.unit);
    next.push_back(e.next);
  }
  void finish_gradients(Ctx&, int unit) override {
    calls.push_back("finish " + std::to_string(unit));
    const std::string name = unit == kOuterUnit
                                 ? "model.norm.weight"
                                 : "model.layers." + std::to_string(unit - 1) + ".input_layernorm.weight";
    const Values g = values_of(model.weights().find(name)->grad);
    with_gradients.push_back(std::any_of(g.begin(), g.end(), [](double v) { return v != 0; }));
  }
  void values_changed() override {}

  Transformer& model;
  std::vector<std::string> calls;
  std::vector<int> entered, next;  ///< next: as announced
  std::vector<bool> with_gradients;
};

// Every rank must enter the same units, including a rank without rows.
TEST(Transformer, ARankWithoutRowsComesToTheSameUnits) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(small_rows());
  const double scale = 1;
  for (const char* policy : {"none", "blocks:2"}) {
    PlannedModel model(ctx, small_options({{"num_hidden_layers", 5}}),
                       {recomputing(policy), {{Pass::train, batch.size()}}});
    randomize(model.weights(), 0.3);
    RecordedAccess access(model);
    loss_of(ctx, model, batch.batch(),
            {.pass = Pass::train, .scale = view_of(std::span<const double>(&scale, 1), {1})});
    model.runner.backward(ctx, batch.batch());
    const std::vector<std::string> calls = std::exchange(access.calls, {});
    EXPECT_THAT(access.with_gradients, ::testing::Each(true));
    EXPECT_THAT(calls, ::testing::IsSupersetOf({"finish 5", "finish 1", "finish 0"}));
    // The announced units were entered next; after the last block, and again after the first, nothing is announced.
    for (std::size_t i = 0; i + 1 < access.next.size(); ++i)
      EXPECT_TRUE(access.next[i] == UnitAccess::kNoUnit || access.next[i] == access.entered[i + 1]) << policy << i;
    EXPECT_THAT(access.next, ::testing::Contains(UnitAccess::kNoUnit).Times(2));
    model.runner.follow(ctx, Pass::train);
    EXPECT_EQ(access.calls, calls) << policy;
  }
}

TEST(Transformer, PlansInAnyOrder) {
  // All passes share rotary tables for the longest row of any pass: a longer one makes all of them grow.
  const Ragged batch(small_rows());
  const BatchSize longer{.tokens = 4, .positions = 60, .targets = 1};
  for (const bool longer_first : {false, true}) {
    Ctx ctx({}, MatmulPrecision::storage, 1);
    std::vector<PlannedPass> passes{{Pass::train, batch.size()}, {Pass::evaluate, longer}};
    if (longer_first) std::swap(passes[0], passes[1]);
    PlannedModel model(ctx, small_options(), {.passes = passes});
    randomize(model.weights(), 0.3);
    EXPECT_GT(train_step(ctx, model, {batch}, {}).loss_sum, 0);
    EXPECT_LE(model.runner.activations().used(), model.runner.activations().planned());
  }
}

TEST(Transformer, UsesWhatItPlanned) {
  for (const char* policy : {"none", "selective", "block", "blocks:2"}) {
    Ctx ctx({}, MatmulPrecision::storage, 1);
    const Ragged batch(small_rows());
    const Execution execution{recomputing(policy), {{Pass::train, batch.size()}}};
    const std::size_t planned = Runner::measure(Transformer(ctx, small_options()), execution).activations.total;
    PlannedModel model(ctx, small_options(), execution);
    randomize(model.weights(), 0.3);
    train_step(ctx, model, {batch}, {});
    EXPECT_EQ(model.runner.activations().used(), planned) << policy;
    EXPECT_EQ(model.runner.activations().planned(), planned) << policy;
  }
}

std::size_t planned_bytes(const Feature& f, const char* policy, BatchSize size) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Transformer model(ctx, options_of(f));
  return Runner::measure(model, {recomputing(policy), {{Pass::train, size}}}).activations.total;
}

TEST(Transformer, RecomputationAndFrozenWeightsSaveMemory) {
  const Json deep{{"num_hidden_layers", 8}, {"intermediate_size", 48}};
  const Feature full{"full", deep}, adapter{"adapter", deep, adapter_on({"q_proj", "v_proj"})};
  const BatchSize size{.tokens = 64, .positions = 64, .targets = 8};
  EXPECT_LT(planned_bytes(full, "selective", size), planned_bytes(full, "none", size) * 85 / 100);
  EXPECT_LT(planned_bytes(full, "block", size), planned_bytes(full, "none", size) / 3);
  // Instead of 9 inputs and outputs, memory holds 4 + 1, and one that the groups share.
  const Json& c = full.config;
  const std::size_t input = 64 * small_options(c).config.hidden_size * sizeof(double);
  EXPECT_EQ(planned_bytes(full, "block", size) - planned_bytes(full, "blocks:2", size), 3 * input);
  EXPECT_LT(planned_bytes(adapter, "none", size), planned_bytes(full, "none", size) * 9 / 10);
}

TEST(Transformer, RefusesABatchLargerThanItsPlan) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const auto rows = small_rows();
  const Ragged small({rows[2]}), all(rows);
  const auto model = random_model(ctx, small_options(), small);
  EXPECT_EQ(error_of([&] { loss_of(ctx, *model, all.batch()); }).kind(), ErrorKind::internal);
}

TEST(Transformer, GetsItsMemoryOnce) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  TransformerOptions options = small_options();
  options.base = Update::frozen;
  PlannedModel model(ctx, options, {});
  const Error again = error_of([&] { Runner(model, {}); });
  EXPECT_EQ(again.kind(), ErrorKind::internal);
  EXPECT_THAT(again.what(), HasSubstr("a model gets its memory once"));
  PlannedModel shares(ctx, options, {.base = &model.runner});
  EXPECT_THAT(error_of([&] { Runner(shares, {}); }).what(), HasSubstr("a model gets its memory once"));
}

TEST(Transformer, NamesWhatCannotBeBuilt) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Error policy = error_of([&] { RecomputePolicy::named("some"); });
  EXPECT_EQ(policy.kind(), ErrorKind::usage);
  EXPECT_THAT(policy.what(), ::testing::AllOf(HasSubstr("\"some\""), HasSubstr("selective")));
  const Error targets = error_of([&] { Transformer(ctx, options_of({"x", Json::object(), adapter_on({"query"})})); });
  EXPECT_EQ(targets.kind(), ErrorKind::usage);
  EXPECT_THAT(targets.what(), HasSubstr("target_modules"));
}

std::vector<std::string> decayed(ParamStore& store) {
  std::vector<std::string> names;
  for (const Param& p : store.all())
    if (p.spec.decay == Decay::yes) names.push_back(p.spec.name);
  return names;
}

TEST(Transformer, NamesAndDecayAreThoseOfTransformers) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  Transformer model(ctx, small_options({{"model_type", "qwen3"}, {"attention_bias", true}, {"num_hidden_layers", 1}}));
  std::vector<std::string> names;
  for (const Param& p : model.weights().all()) names.push_back(p.spec.name);
  const std::string l = "model.layers.0.", a = l + "self_attn.", m = l + "mlp.";
  EXPECT_THAT(names, ::testing::UnorderedElementsAre(
                         "model.embed_tokens.weight", l + "input_layernorm.weight", a + "q_proj.weight",
                         a + "q_proj.bias", a + "k_proj.weight", a + "k_proj.bias", a + "v_proj.weight",
                         a + "v_proj.bias", a + "o_proj.weight", a + "o_proj.bias", a + "q_norm.weight",
                         a + "k_norm.weight", l + "post_attention_layernorm.weight", m + "gate_proj.weight",
                         m + "up_proj.weight", m + "down_proj.weight", "model.norm.weight", "lm_head.weight"));
  EXPECT_THAT(decayed(model.weights()),
              ::testing::UnorderedElementsAre("model.embed_tokens.weight", a + "q_proj.weight", a + "k_proj.weight",
                                              a + "v_proj.weight", a + "o_proj.weight", m + "gate_proj.weight",
                                              m + "up_proj.weight", m + "down_proj.weight", "lm_head.weight"));
}

TEST(Transformer, BeginsAsTransformersDoes) {
  Ctx ctx({}, MatmulPrecision::storage, 2);
  Feature f{"init",
            {{"vocab_size", 500}, {"hidden_size", 40}, {"attention_bias", true}, {"initializer_range", 0.02}},
            adapter_on({"all-linear"})};
  f.lora->r = 32;
  const auto model = planned_model(ctx, options_of(f), {.tokens = 1, .positions = 1, .targets = 1});
  model->weights().initialize(ctx, 3);
  model->adapter().initialize(ctx, 3);
  const auto values = [&](const char* name) {
    const Param* p = model->weights().find(name);
    return values_of((p ? p : model->adapter().find(name))->value);
  };
  EXPECT_THAT(values("model.layers.0.self_attn.q_proj.bias"), ::testing::Each(0.0));
  EXPECT_THAT(values("model.norm.weight"), ::testing::Each(1.0));
  EXPECT_THAT(values("base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"), ::testing::Each(0.0));
  double squares = 0;
  const Values embedding = values("model.embed_tokens.weight");
  for (const double v : embedding) squares += v * v;
  // 20,000 values: the standard deviation is known to 0.5 %.
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(embedding.size())), 0.02, 0.0004);
  // A is uniform in +-1/sqrt(in): never beyond the bound, often close to it.
  const Values a = values("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  const auto [least, most] = std::minmax_element(a.begin(), a.end());
  const double bound = 1 / std::sqrt(40.0);
  EXPECT_GE(*least, -bound);
  EXPECT_LE(*most, bound);
  EXPECT_LT(*least, -0.99 * bound);
  EXPECT_GT(*most, 0.99 * bound);
}

}  // namespace
}  // namespace qtrain::testing
