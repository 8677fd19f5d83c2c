// Models whose files are in FP8 are loaded as dense models, or quantized to 4 bits while they are loaded.
#include <gmock/gmock.h>

#include "model/hf_folder.h"
#include "model/model_config.h"
#include "tests/model/random_model.h"

namespace qtrain::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Made by transformers and compressed-tensors (tests/quant/make_fp8_goldens.py).
const fs::path kFp8Folders = QTRAIN_SOURCE_DIR "/tests/quant/goldens";

class LoadedFp8 : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<PlannedModel> loaded(std::optional<Quantization> how = {}) {
    const fs::path folder = kFp8Folders / GetParam();
    TransformerOptions options{.config = load_model_config(folder), .quantization = std::move(how)};
    if (options.quantization)
      options.base = Update::frozen, options.lora = LoraConfig{.r = 1, .targets = {"all-linear"}};
    auto model = planned_model(ctx_, std::move(options), {.tokens = 4, .positions = 4, .targets = 3});
    EXPECT_THAT(load_base_weights(ctx_, model->runner, folder), IsEmpty());
    return model;
  }

  Ctx ctx_{{}, MatmulPrecision::storage, 1};
  const SafetensorsReader expected_{kFp8Folders / GetParam() / "expected.safetensors"};
};

TEST_P(LoadedFp8, HasTheValuesThatTheLibrariesExpand) {
  const auto model = loaded();
  for (const auto& [name, want] : expected_.tensors())
    EXPECT_EQ(values_of(model->weights().find(name)->value), values_of(want)) << name;
  EXPECT_FALSE(model->config().json.contains("quantization_config")) << "what is written is dense";
  EXPECT_EQ(model->config().dtype, DType::bf16);
}

TEST_P(LoadedFp8, IsQuantizedFromTheExpandedValues) {
  Quantization how;
  how.source = DType::bf16;
  const auto model = loaded(how);
  for (const QuantizedLinear& q : model->quantized()) {
    if (!expected_.contains(q.name())) continue;
    const ConstTensor want = expected_.at(q.name());
    std::vector<float> got(static_cast<std::size_t>(want.numel()));
    q.expand(ctx_, view_of(std::span(got), want.shape));
    const Quantized4 alone =
        quantize_matrix(ctx_, want, {.type = how.bnb.quant_type, .nested = how.bnb.double_quant}, "");
    std::vector<float> from_dense(got.size());
    ops::dequantize4(ctx_, {.y = view_of(std::span(from_dense), want.shape), .w = alone.view().blocks()});
    EXPECT_EQ(got, from_dense) << q.name();
  }
}

// Only the routers of this model have a width that is a multiple of 16: their choice of experts must not
// depend on the few digits of FP8.
TEST(Fp8Multiplication, LeavesOutRouters) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(small_rows());
  const auto loss = [&](bool fp8) {
    TransformerOptions options =
        options_of({.name = "sparse",
                    .config = {{"model_type", "mixtral"}, {"num_local_experts", 16}, {"num_experts_per_tok", 2}}});
    options.activation_dtype = DType::f32;
    if (fp8) options.fp8 = Fp8Recipe::tensorwise;
    return loss_of(ctx, *random_model(ctx, std::move(options), batch), batch.batch());
  };
  EXPECT_EQ(loss(true), loss(false));
}

// The widths of a dense one are multiples of 16.
TEST(Fp8Multiplication, IsThatOfOtherLayers) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(small_rows());
  const auto loss = [&](bool fp8) {
    TransformerOptions options =
        options_of({.name = "dense", .config = {{"intermediate_size", 32}, {"hidden_size", 16}}});
    options.activation_dtype = DType::f32;
    if (fp8) options.fp8 = Fp8Recipe::tensorwise;
    return loss_of(ctx, *random_model(ctx, std::move(options), batch), batch.batch());
  };
  EXPECT_NE(loss(true), loss(false));
  EXPECT_NEAR(loss(true), loss(false), 0.1 * loss(false));
}

// Kept in FP8, every matrix has the numbers and scales of the file.
TEST_P(LoadedFp8, IsKeptAsItIs) {
  const fs::path folder = kFp8Folders / GetParam();
  Quantization how{.fp8 = fp8_of_folder(load_model_config(folder), folder)};
  how.source = DType::bf16;
  const auto model = loaded(how);
  const std::size_t dense = model->params().linear_elements() * sizeof(Bf16);
  EXPECT_LT(model->params().quantization_bytes(), dense / 10);
  std::size_t compared = 0;
  for (const QuantizedLinear& q : model->quantized()) {
    if (!expected_.contains(q.name())) continue;
    ++compared;
    const ConstTensor want = expected_.at(q.name());
    std::vector<Bf16> got(static_cast<std::size_t>(want.numel()));
    const Tensor all = view_of(std::span(got), want.shape);
    q.expand(ctx_, all);
    EXPECT_EQ(values_of(all), values_of(want)) << q.name();
  }
  EXPECT_EQ(compared, expected_.tensors().size());
}

/// A model with an adapter whose frozen weights are dense or stored in FP8, multiplied in FP8 or not. Its widths are
/// multiples of 16.
TransformerOptions stored_options(bool stored, bool fp8) {
  TransformerOptions options = options_of({.name = "stored",
                                           .config = {{"intermediate_size", 48},
                                                      {"hidden_size", 32},
                                                      {"head_dim", 16},
                                                      {"num_attention_heads", 2},
                                                      {"num_key_value_heads", 1}},
                                           .lora = adapter_on({"all-linear"})});
  options.activation_dtype = DType::f32;
  options.join = JoinProjections::always;
  if (fp8) options.fp8 = Fp8Recipe::tensorwise;
  if (stored) options.quantization = Quantization{.fp8 = Fp8Storage{}};
  return options;
}

/// A step of a model that is drawn from a seed.
Outcome learned(Ctx& ctx, const TransformerOptions& options) {
  const Ragged batch(small_rows());
  const auto model = planned_model(ctx, options, batch.size());
  model->runner.initialize_weights(ctx, 3);
  randomize(model->adapter(), 0.4);
  model->runner.values_changed();
  return train_step(ctx, *model, {batch}, {});
}

// Codes and scale are those that each GEMM would find itself, so the results have the same bits.
TEST(StoredFp8, IsWhatGemmsEncode) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  EXPECT_TRUE(learned(ctx, stored_options(true, true)) == learned(ctx, stored_options(false, true)));
}

// Likewise in blocks, if each layer of a GEMM begins with one.
TEST(StoredFp8, IsWhatGemmsEncodeInBlocks) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const auto options = [](bool stored) {
    TransformerOptions o = options_of({.name = "squares",
                                       .config = {{"intermediate_size", 256},
                                                  {"hidden_size", 144},
                                                  {"head_dim", 64},
                                                  {"num_attention_heads", 2},
                                                  {"num_key_value_heads", 2}},
                                       .lora = adapter_on({"all-linear"})});
    o.activation_dtype = DType::f32;
    o.join = JoinProjections::always;
    o.fp8 = Fp8Recipe::blockwise;
    if (stored) o.quantization = Quantization{.fp8 = Fp8Storage{.block = {ops::kFp8Block, ops::kFp8Block}}};
    return o;
  };
  EXPECT_TRUE(learned(ctx, options(true)) == learned(ctx, options(false)));
}

// The largest magnitudes of operands are the same, whoever finds them. With all weights trained, too, where transposed
// gradients are operands.
TEST(LargestMagnitudes, AreFoundByTheKernelsThatWriteOperands) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  for (const bool frozen : {true, false}) {
    TransformerOptions options = stored_options(frozen, true);
    if (!frozen) options.base = Update::trained, options.lora.reset();
    const Outcome found = learned(ctx, options);
    options.finds_largest = false;
    EXPECT_TRUE(found == learned(ctx, options)) << frozen;
  }
}

// Nothing else reads those of x, which every norm and MLP would write. Those of a gradient are read anyway.
TEST(LargestMagnitudes, AreOfXOnlyForAForwardPassInFp8) {
  const auto names = [](bool forward, bool of_gradients) {
    TransformerOptions options = stored_options(true, true);
    options.fp8_forward = forward;
    std::vector<std::string> found;
    const Transformer model({}, options);
    for (const TensorSpec& t : model.layers().front().tensors)
      if (t.name.ends_with(".largest") && (t.gradient == HasGradient::yes) == of_gradients) found.push_back(t.name);
    return found;
  };
  EXPECT_THAT(names(true, false), SizeIs(3));  // of the inputs of q, k, v, of gate and up, and of down
  EXPECT_THAT(names(false, false), IsEmpty());
  EXPECT_THAT(names(true, true), SizeIs(2));  // of q, k, v, and of gate and up
  EXPECT_EQ(names(false, true), names(true, true));
}

// Without GEMMs in FP8, weights are expanded: only their rounding differs from dense ones.
TEST(StoredFp8, IsExpandedForOtherGemms) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Outcome stored = learned(ctx, stored_options(true, false)), dense = learned(ctx, stored_options(false, false));
  EXPECT_NE(stored.loss_sum, dense.loss_sum);
  EXPECT_NEAR(stored.loss_sum, dense.loss_sum, 0.02 * dense.loss_sum);
  EXPECT_NE(stored.loss_sum, learned(ctx, stored_options(true, true)).loss_sum);
}

class SharedScale : public ::testing::TestWithParam<JoinProjections> {};

TEST_P(SharedScale, IsThatOfLayersWithTheSameInput) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(small_rows());
  TransformerOptions options = stored_options(true, true);
  options.join = GetParam();
  const auto model = planned_model(ctx, std::move(options), batch.size());
  model->runner.initialize_weights(ctx, 3);
  const auto weight_of = [&](const std::string& name) {
    for (const QuantizedLinear& q : model->quantized())
      if (q.name() == "model.layers.0." + name + ".weight") return std::get<Fp8Weight>(q.weight());
    throw std::invalid_argument(name);
  };
  const Fp8Weight q = weight_of("self_attn.q_proj"), k = weight_of("self_attn.k_proj"),
                  v = weight_of("self_attn.v_proj"), o = weight_of("self_attn.o_proj");
  EXPECT_EQ(q.scales.data, k.scales.data);
  EXPECT_EQ(q.scales.data, v.scales.data);
  EXPECT_NE(q.scales.data, o.scales.data);
  EXPECT_EQ(weight_of("mlp.gate_proj").scales.data, weight_of("mlp.up_proj").scales.data);
  if (GetParam() == JoinProjections::always) {
    EXPECT_TRUE(are_contiguous(q.codes, k.codes) && are_contiguous(k.codes, v.codes));
  }
}

INSTANTIATE_TEST_SUITE_P(Each, SharedScale, ::testing::Values(JoinProjections::always, JoinProjections::never));

INSTANTIATE_TEST_SUITE_P(Folders, LoadedFp8, ::testing::Values("fp8_block", "fp8_row"));

}  // namespace
}  // namespace qtrain::testing
