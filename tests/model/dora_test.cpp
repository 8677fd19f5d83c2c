// Adapters with magnitudes (DoRA). Gradients are in transformer_test.cpp, results of PEFT in tests/golden.
#include <gmock/gmock.h>

#include "tests/core/temp_folder.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

using ::testing::HasSubstr;

TransformerOptions with_magnitudes(bool dora, std::vector<std::string> targets) {
  return {.config = parse_model_config(small_config(Json::object()), "small"),
          .activation_dtype = DType::f64,
          .base = Update::frozen,
          .lora = LoraConfig{.r = 3, .alpha = 5, .dora = dora, .targets = std::move(targets)}};
}

std::unique_ptr<PlannedModel> begun(Ctx& ctx, const Ragged& batch, bool dora) {
  auto model = planned_model(ctx, with_magnitudes(dora, {"all-linear"}), batch.size());
  model->runner.initialize_weights(ctx, 1);
  model->adapter().initialize(ctx, 2);
  model->runner.initialize_magnitudes(ctx);
  return model;
}

double* values_in(Transformer& model, const char* part) {
  return model.adapter().find(std::string("base_model.model.model.layers.1.mlp.down_proj.") + part)->value.as<double>();
}

TEST(Dora, BeginsAsTheBaseModel) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(small_rows());
  const auto plain = begun(ctx, batch, false), dora = begun(ctx, batch, true);
  EXPECT_EQ(loss_of(ctx, *dora, batch.batch()), loss_of(ctx, *plain, batch.batch()));
}

TEST(Dora, LengthsAreThoseOfTheMagnitudesWhateverTheAdapterAdds) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(small_rows());
  const auto model = begun(ctx, batch, true);
  const double before = loss_of(ctx, *model, batch.batch());
  double* b = values_in(*model, "lora_B.weight");
  *b = 1;
  model->runner.measure_rows(ctx);
  EXPECT_NE(loss_of(ctx, *model, batch.batch()), before);
  *values_in(*model, "lora_magnitude_vector") = 0;
  const double without = loss_of(ctx, *model, batch.batch());
  *b = 2;
  model->runner.measure_rows(ctx);
  EXPECT_EQ(loss_of(ctx, *model, batch.batch()), without) << "a row of length 0";
}

TEST(Dora, IsNotForEmbeddings) {
  const Error e = error_of([] { Transformer(Device{}, with_magnitudes(true, {"q_proj", "embed_tokens"})); });
  EXPECT_EQ(e.kind(), ErrorKind::usage);
  EXPECT_THAT(e.text().cause, HasSubstr("use_dora"));
}

}  // namespace
}  // namespace qtrain::testing
