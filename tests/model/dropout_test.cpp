// Dropout of adapters: a different mask in each layer, for each input, and in each chunk of the head.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/rng.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

/// A model with random weights whose adapter on `targets` drops half of its inputs.
std::unique_ptr<PlannedModel> dropping_model(Ctx& ctx, const Json& config, const LoraConfig& lora,
                                             const Ragged& batch) {
  auto model = planned_model(ctx,
                             {.config = parse_model_config(small_config(config), "small"),
                              .activation_dtype = DType::f64,
                              .base = Update::frozen,
                              .lora = lora},
                             batch.size());
  model->runner.initialize_weights(ctx, 1);
  for (const Param& p : model->adapter().all())  // including B, which would start at zero
    for (std::int64_t i = 0; i < p.value.numel(); ++i)
      p.value.as<double>()[i] = uniform(philox(1, 2, static_cast<std::uint64_t>(i))[0]) - 0.5;
  return model;
}

LoraConfig halving(std::vector<std::string> targets) {
  return {.r = 3, .alpha = 5, .dropout = 0.5, .targets = std::move(targets)};
}

TEST(Dropout, IsForTrainingOnlyAndFollowsItsSeed) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(small_rows());
  LoraConfig lora = halving({"all-linear"});
  const auto with = dropping_model(ctx, Json::object(), lora, batch);
  lora.dropout = 0;
  const auto without = dropping_model(ctx, Json::object(), lora, batch);
  const double plain = loss_of(ctx, *without, batch.batch());
  const std::int64_t seed = 1;
  EXPECT_EQ(loss_of(ctx, *with, batch.batch(), {.dropout_seed = view_of(std::span(&seed, 1), {1})}), plain);
  const Outcome a = train_step(ctx, *with, {batch}, {.dropout_seed = 1}),
                b = train_step(ctx, *with, {batch}, {.dropout_seed = 2});
  EXPECT_NE(a.loss_sum, b.loss_sum);
  EXPECT_NE(a.loss_sum, plain);
  EXPECT_TRUE(train_step(ctx, *with, {batch}, {.dropout_seed = 1}) == a);
}

// If only one token has a gradient, the zero columns of A's gradient are the inputs that dropout removed.
TEST(Dropout, IsAnotherInEachLayerAndForEachInput) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch({{.ids = {3, 4}, .labels = {3, 4}}});
  constexpr std::size_t kWidth = 32, kLayers = 4;
  const auto model =
      dropping_model(ctx, {{"num_hidden_layers", kLayers}, {"hidden_size", kWidth}}, halving({"all-linear"}), batch);
  std::set<std::vector<bool>> masks;
  for (const std::int64_t seed : {1, 2}) {
    const Outcome out = train_step(ctx, *model, {batch}, {.dropout_seed = seed});
    for (std::size_t layer = 0; layer < kLayers; ++layer)
      for (const char* module : {"self_attn.v_proj", "mlp.gate_proj"}) {
        const Values& g = out.grads.at(fmt::format("base_model.model.model.layers.{}.{}.lora_A.weight", layer, module));
        ASSERT_EQ(g.size(), 3 * kWidth);
        std::vector<bool> kept;
        for (std::size_t i = 0; i < kWidth; ++i) kept.push_back(g[i] != 0 || g[kWidth + i] != 0);
        masks.insert(kept);
      }
  }
  EXPECT_EQ(masks.size(), 2 * kLayers * 2);
}

// 64 equal rows in two chunks of 32: with the same mask in both, each would have half of the loss.
TEST(Dropout, IsAnotherInEachChunkOfTheHead) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  constexpr std::int64_t kVocabulary = (std::int64_t{64} << 20) / 8 / 32;
  const auto rows = [](std::size_t n) { return Ragged(std::vector<LabeledRow>(n, {.ids = {3, 4}, .labels = {3, 4}})); };
  const auto model =
      dropping_model(ctx, {{"vocab_size", kVocabulary}, {"num_hidden_layers", 1}}, halving({"lm_head"}), rows(64));
  const double one = train_step(ctx, *model, {rows(32)}, {.dropout_seed = 1}).loss_sum;
  const double two = train_step(ctx, *model, {rows(64)}, {.dropout_seed = 1}).loss_sum;
  EXPECT_GT(std::abs(two - 2 * one), 1e-6 * two);
}

}  // namespace
}  // namespace qtrain::testing
