// Models whose linear layers are in 4 or 8 bits behave like dense models with the same values.
#include <gmock/gmock.h>

#include "model/hf_folder.h"
#include "model/model_config.h"
#include "tests/core/temp_folder.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A model in bf16, and as saved by transformers in nf4, fp4 and int8 (tests/quant/make_bnb_goldens.py).
const fs::path kFolders = QTRAIN_SOURCE_DIR "/tests/quant/goldens";

Quantization in_code(const std::string& code) {
  Quantization how;
  how.source = DType::bf16;
  how.bnb.bits = code == "int8" ? BnbConfig::Bits::eight : BnbConfig::Bits::four;
  how.bnb.quant_type = code == "fp4" ? FourBit::fp4 : FourBit::nf4;
  how.bnb.double_quant = code == "nf4";
  return how;
}

TransformerOptions options_for(std::optional<Quantization> how) {
  ModelConfig config = load_model_config(kFolders / "bnb_model");
  return {.config = std::move(config),
          .base = Update::frozen,
          .lora = LoraConfig{.r = 3, .alpha = 5, .dropout = 0.25, .targets = {"all-linear"}},
          .quantization = std::move(how)};
}

class QuantizedModel : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<PlannedModel> loaded(TransformerOptions options, const fs::path& folder,
                                       const ExecutionChoice& choice = {}) {
    auto model = planned_model(ctx_, std::move(options), batch_.size(), choice);
    EXPECT_THAT(load_base_weights(ctx_, model->runner, folder), IsEmpty());
    fill(*model);
    return model;
  }
  void fill(PlannedModel& model) {
    model.runner.copies().fill_dense(ctx_, model.params());
    model.adapter().initialize(ctx_, 5);
    for (const Param& p : model.adapter().all())  // PEFT initializes B to zero, so A would have no gradient
      if (p.spec.name.ends_with("lora_B.weight"))
        for (float& v : p.value.span<float>()) v = 0.25F;
  }
  Outcome step(PlannedModel& model) { return train_step(ctx_, model, {batch_}, {.dropout_seed = 9}); }
  /// The model that is quantized while it is loaded.
  std::unique_ptr<PlannedModel> quantized() { return loaded(options_for(in_code(GetParam())), kFolders / "bnb_model"); }

  Ctx ctx_{{}, MatmulPrecision::storage, 1};
  Ragged batch_{small_rows()};
};

TEST_P(QuantizedModel, LearnsAsTheDenseModelOfTheSameValues) {
  const auto model = quantized();
  const auto dense = loaded(options_for({}), kFolders / "bnb_model");
  const Outcome before = step(*dense);
  for (const QuantizedLinear& q : model->quantized()) q.expand(ctx_, dense->weights().find(q.name())->value);
  const Outcome after = step(*dense);
  EXPECT_NE(after.loss_sum, before.loss_sum) << "quantization changes values";
  EXPECT_TRUE(step(*model) == after);
  EXPECT_EQ(model->params().elements(), dense->params().elements());
  EXPECT_EQ(model->params().linear_elements(), dense->params().linear_elements());
}

TEST_P(QuantizedModel, IsTheOneThatTransformersSaved) {
  const ModelConfig config = load_model_config(kFolders / ("bnb_model_" + GetParam()));
  const auto how = quantization_of_folder(config, kFolders / ("bnb_model_" + GetParam()));
  ASSERT_TRUE(how);
  EXPECT_EQ(how->describe(), in_code(GetParam()).describe());
  const auto saved = loaded(options_for(how), kFolders / ("bnb_model_" + GetParam()));
  const auto quantized = loaded(options_for(how), kFolders / "bnb_model");
  const Outcome theirs = step(*saved), ours = step(*quantized);
  // The offset of nested scales is a mean, which is summed in another order there: its last bits differ.
  const double tolerance = GetParam() == "nf4" ? 1e-6 : 0;
  EXPECT_NEAR(ours.loss_sum, theirs.loss_sum, tolerance * theirs.loss_sum);
}

TEST_P(QuantizedModel, HasTheSameGradientsUnderEveryPolicyAndWithDenseCopies) {
  const Outcome expected = step(*quantized());
  for (const char* policy : {"selective", "block", "blocks:2"}) {
    EXPECT_TRUE(step(*loaded(options_for(in_code(GetParam())), kFolders / "bnb_model", recomputing(policy))) ==
                expected)
        << policy;
  }
  const TransformerOptions options = options_for(in_code(GetParam()));
  const Execution dense{.choice = {.dense_copies = KeepCopies::yes}, .passes = {{Pass::train, batch_.size()}}};
  const std::size_t planned = Runner::measure(Transformer(ctx_, options), dense).dense_copies;
  PlannedModel copies(ctx_, options, dense);
  load_base_weights(ctx_, copies.runner, kFolders / "bnb_model");
  fill(copies);
  EXPECT_TRUE(step(copies) == expected);
  EXPECT_EQ(copies.runner.copies().dense().values().planned(), planned);
  EXPECT_GT(planned, 0u);
}

TEST_P(QuantizedModel, LeavesLayersThatAreNamedAsTheyAre) {
  Quantization how = in_code(GetParam());
  how.bnb.skip_modules = {"q_proj", "model.layers.0.mlp"};
  const auto model = loaded(options_for(how), kFolders / "bnb_model");
  std::vector<std::string> names;
  for (const QuantizedLinear& q : model->quantized()) names.push_back(q.name());
  EXPECT_THAT(names,
              ::testing::ElementsAre("model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
                                     "model.layers.0.self_attn.o_proj.weight"));
}

TEST_P(QuantizedModel, ComputesAFewRowsAsItDoesMany) {
  Ragged few({small_rows()[0]});
  ASSERT_LE(few.size().tokens, ops::Gemm4::kFewRows);
  const auto model = quantized();
  const double many = loss_of(ctx_, *model, Ragged({small_rows()[0], small_rows()[3]}).batch());
  EXPECT_NEAR(loss_of(ctx_, *model, few.batch()), many, 1e-5 * many);
}

INSTANTIATE_TEST_SUITE_P(Codes, QuantizedModel, ::testing::Values("nf4", "fp4", "int8"),
                         [](const auto& info) { return info.param; });

template <class F>
std::string complaint(F&& act) {
  try {
    act();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::input);
    return e.what();
  }
  return "none";
}

TEST(QuantizedFolder, IsRefusedWhereItIsNotWhatItsConfigSays) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const ModelConfig nf4 = load_model_config(kFolders / "bnb_model_nf4");
  EXPECT_THAT(complaint([&] { quantization_of_folder(nf4, kFolders / "bnb_model"); }),
              HasSubstr("quantization_config"));
  PlannedModel eight(ctx, options_for(in_code("int8")), {}), dense(ctx, options_for({}), {});
  EXPECT_THAT(complaint([&] { load_base_weights(ctx, eight.runner, kFolders / "bnb_model_nf4"); }),
              HasSubstr("q_proj.weight"));
  EXPECT_THAT(complaint([&] { load_base_weights(ctx, dense.runner, kFolders / "bnb_model_nf4"); }),
              HasSubstr("not a floating-point type"));
}

}  // namespace
}  // namespace qtrain::testing
