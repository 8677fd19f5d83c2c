// Models with each config feature: gradients by finite differences, and the same bits under every recompute policy.
#include <gmock/gmock.h>

#include "tests/model/random_model.h"

namespace qtrain::testing {
namespace {

Json sliding(const char* family, std::int64_t from) {
  return {{"model_type", family}, {"use_sliding_window", true}, {"sliding_window", 3}, {"max_window_layers", from}};
}

std::vector<Feature> features() {
  LoraConfig dropout = adapter_on({"all-linear"}), rs = adapter_on({"q_proj", "v_proj"}),
             dora = adapter_on({".*proj|lm_head"}), dora_dropout = adapter_on({"k_proj", "up_proj", "lm_head"});
  dropout.dropout = dora_dropout.dropout = 0.3;
  rs.rslora = dora.dora = dora_dropout.dora = true;
  const Json qwen3{{"model_type", "qwen3"}};
  return {
      {"llama"},
      {"tied", {{"tie_word_embeddings", true}}},
      {"biases", {{"attention_bias", true}, {"mlp_bias", true}}},
      {"mistral_window", {{"model_type", "mistral"}, {"sliding_window", 2}}},
      {"qwen2_bias_window", sliding("qwen2", 1)},
      {"qwen3_head_norms", qwen3},
      {"qwen3_bias_window_tied",
       [] {
         Json c = sliding("qwen3", 0);
         c.update({{"attention_bias", true}, {"tie_word_embeddings", true}});
         return c;
       }()},
      {"one_kv_head", {{"num_key_value_heads", 1}}},
      {"as_many_kv_heads", {{"num_key_value_heads", 4}, {"head_dim", 2}}},
      {"rope_yarn", {{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4}}}}},
      {"lora", Json::object(), adapter_on({"q_proj", "v_proj"})},
      {"lora_all_with_head_norms", qwen3, adapter_on({"all-linear"})},
      {"lora_dropout", {{"model_type", "qwen2"}}, dropout},
      {"rslora", Json::object(), rs},
      {"dora", {{"attention_bias", true}}, dora},
      {"dora_dropout", {{"model_type", "qwen2"}}, dora_dropout},
      {"lora_in_the_last_layer", Json::object(),
       adapter_on({"model.layers.1.self_attn.k_proj", "model.layers.1.mlp.down_proj"})},
  };
}

class FamilyFeature : public ::testing::TestWithParam<Feature> {};

// The derivative along a random direction of each parameter, by central differences of the loss.
TEST_P(FamilyFeature, GradientsAreThoseOfTheLoss) {
  constexpr double kStep = 1e-5;
  constexpr StepInput kIn{.scale = 0.25, .dropout_seed = 11};
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(small_rows());
  const auto model = random_model(ctx, options_of(GetParam()), batch);
  const Outcome out = train_step(ctx, *model, {batch}, kIn);
  ASSERT_FALSE(out.grads.empty());
  for (const Param* p : model->trained()) {
    const Values start = values_of(p->value);
    const auto loss_at = [&](double step) {
      for (std::size_t i = 0; i < start.size(); ++i)
        p->value.as<double>()[i] = start[i] + step * (uniform(philox(3, 5, i)[0]) - 0.5);
      return kIn.scale * train_step(ctx, *model, {batch}, kIn).loss_sum;
    };
    const double difference = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    loss_at(0);
    double derivative = 0, size = 0;
    for (std::size_t i = 0; i < start.size(); ++i) {
      const double g = out.grads.at(p->spec.name)[i], direction = uniform(philox(3, 5, i)[0]) - 0.5;
      derivative += g * direction;
      size += std::abs(g * direction);
    }
    EXPECT_GT(size, 1e-6) << p->spec.name << " has no gradient";
    // Third derivatives times the squared step, and cancellation in a loss of about 30.
    EXPECT_NEAR(derivative, difference, 1e-8 + 1e-6 * size) << p->spec.name;
  }
}

TEST_P(FamilyFeature, RecomputePoliciesThreadsAndMicroBatchesAgree) {
  for (const DType d : {DType::f32, DType::f64}) {
    TransformerOptions options = options_of(GetParam());
    options.activation_dtype = d;
    const Ragged batch(small_rows());
    const auto step = [&](const char* recompute, int threads) {
      Ctx ctx({}, MatmulPrecision::storage, threads);
      const auto model = random_model(ctx, options, batch, recomputing(recompute));
      return train_step(ctx, *model, {batch}, {.dropout_seed = 11});
    };
    const Outcome reference = step("none", 1);
    EXPECT_TRUE(step("selective", 2) == reference);
    EXPECT_TRUE(step("block", 3) == reference);
    EXPECT_TRUE(step("blocks:2", 1) == reference);
  }
}

// A batch without targets, which no chunk of the head computes, before and after one with targets.
TEST_P(FamilyFeature, FirstGradientsAreThoseThatAreAddedToZeros) {
  const Ragged batch(small_rows()), none({{{8, 9, 10}, {kNoLabel, kNoLabel, kNoLabel}}});
  const std::vector<Ragged> cases[] = {{batch}, {batch, batch}, {none}, {none, batch}, {batch, none}};
  for (const std::vector<Ragged>& micro_batches : cases) {
    const auto step = [&](GradientSum first) {
      Ctx ctx({}, MatmulPrecision::storage, 1);
      const auto model = random_model(ctx, options_of(GetParam()), batch);
      return train_step(ctx, *model, micro_batches, {.dropout_seed = 11, .first = first});
    };
    EXPECT_TRUE(step(GradientSum::first) == step(GradientSum::further));
  }
}

INSTANTIATE_TEST_SUITE_P(Family, FamilyFeature, ::testing::ValuesIn(features()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace qtrain::testing
