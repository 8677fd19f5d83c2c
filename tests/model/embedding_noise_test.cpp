// Noise on embeddings: where it is added, and that only training has it.
#include "kernels/noise.h"
#include "tests/model/random_model.h"

namespace qtrain::testing {
namespace {

/// Noise of four tokens, and what is added to their embeddings.
struct TestNoise {
  std::vector<std::int64_t> keys{5, 6, 7, 8};
  std::vector<float> magnitudes{0.5F, 0.25F, 0, 1};

  EmbeddingNoise run() const {
    return {.keys = view_of(std::span<const std::int64_t>(keys), {4}),
            .magnitudes = view_of(std::span<const float>(magnitudes), {4})};
  }
  Values values(Ctx& ctx, std::int64_t width) const {
    Values all(4 * static_cast<std::size_t>(width));
    ops::add_noise(
        ctx, {.y = view_of(std::span<double>(all), {4, width}), .keys = run().keys, .magnitudes = run().magnitudes});
    return all;
  }
};

/// The loss of a training pass.
double training_loss(Ctx& ctx, PlannedModel& model, const Ragged& batch, const EmbeddingNoise& noise = {}) {
  const double scale = 1;
  begin_gradients(ctx, model, GradientSum::further);
  return loss_of(ctx, model, batch.batch(),
                 {.pass = Pass::train, .scale = view_of(std::span<const double>(&scale, 1), {1}), .noise = noise});
}

struct ScaledModel {
  Json config;
  double within;  ///< factor that the model's embedding module applies to its own result
};

class EmbeddingNoiseOf : public ::testing::TestWithParam<ScaledModel> {};

// Noise on the result of the embedding module is another embedding of each token, if all tokens are different.
TEST_P(EmbeddingNoiseOf, IsAddedToTheResultOfTheModule) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const std::vector<std::int32_t> ids{3, 9, 4, 17};
  const Ragged batch({{ids, ids}});
  const auto model = random_model(ctx, options_of({.name = "scaled", .config = GetParam().config}), batch);
  const TestNoise noise;
  const double plain = training_loss(ctx, *model, batch), noisy = training_loss(ctx, *model, batch, noise.run()),
               evaluated = loss_of(ctx, *model, batch.batch(), {.noise = noise.run()});
  EXPECT_EQ(evaluated, plain) << "evaluations have no noise";
  EXPECT_GT(std::abs(noisy - plain), 1e-3);
  const std::int64_t width = model->config().hidden_size;
  const Values added = noise.values(ctx, width);
  auto* table = model->params().embedding().weight->value.as<double>();
  for (std::size_t t = 0; t < ids.size(); ++t)
    for (std::int64_t c = 0; c < width; ++c)
      table[ids[t] * width + c] +=
          added[t * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)] / GetParam().within;
  EXPECT_NEAR(training_loss(ctx, *model, batch), noisy, 1e-6);  // noise is float32
}

INSTANTIATE_TEST_SUITE_P(
    All, EmbeddingNoiseOf,
    ::testing::Values(ScaledModel{Json::object(), 1},
                      ScaledModel{{{"model_type", "granite"}, {"embedding_multiplier", 3.0}, {"logits_scaling", 2.0}},
                                  1},
                      ScaledModel{{{"model_type", "gemma2"}, {"query_pre_attn_scalar", 6}}, std::sqrt(12.0F)}),
    [](const auto& info) { return info.param.config.value("model_type", "llama"); });

}  // namespace
}  // namespace qtrain::testing
