// Adapters in the GEMMs of their layers: a GPU with 16-bit activations computes what a processor does in float32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/emulator/learned_step.h"

namespace qtrain::testing {
namespace {

constexpr int kTriedLayers = 2;

struct AdapterCase {
  std::string name;
  Tried tried;
  int groups = 3;       ///< of layers in a block that are joined with their adapters: all but o
  int groups_once = 4;  ///< whose dy is read once for the gradients of adapters
};

void PrintTo(const AdapterCase& c, std::ostream* out) {
  *out << c.name;
}

Tried adapted(const Json& config, const LoraConfig& lora) {
  Tried t = dense(config.is_null() ? Json::object() : config);
  t.options.base = Update::frozen;
  t.options.weight_dtype = DType::bf16;
  t.options.lora = lora;
  return t;
}

LoraConfig everywhere(std::int64_t r) {
  return {.r = r, .alpha = 6, .targets = {"all-linear"}};
}

/// With a small scale: rounding errors of a large adapter grow from layer to layer.
LoraConfig of_rank_one() {
  LoraConfig lora = everywhere(1);
  lora.alpha = 1;
  return lora;
}

LoraConfig with_patterns() {
  LoraConfig lora = everywhere(8);
  lora.rank_pattern = {{"k_proj", 3}, {"up_proj", 5}};
  lora.alpha_pattern = {{"v_proj", 24.0}};
  return lora;
}

Tried quantized(Tried t, BnbConfig::Bits bits) {
  t.options.quantization.emplace();
  t.options.quantization->source = DType::bf16;
  t.options.quantization->bnb.bits = bits;
  return t;
}

Tried repeated(Tried t, int micro_batches) {
  t.micro_batches = micro_batches;
  return t;
}

std::vector<AdapterCase> adapter_cases() {
  using enum BnbConfig::Bits;
  const Json qwen2{{"model_type", "qwen2"}}, qwen3{{"model_type", "qwen3"}};
  const Json biases{{"attention_bias", true}, {"mlp_bias", true}, {"intermediate_size", 33}};
  LoraConfig some = everywhere(4);
  some.targets = {"q_proj", "v_proj", "up_proj", "down_proj"};
  LoraConfig one = everywhere(4);
  one.targets = {"k_proj", "o_proj"};
  return {{"rank_8", adapted({}, everywhere(8))},
          {"rank_3", adapted({}, everywhere(3)), 3, 0},
          {"rank_1", adapted(qwen3, of_rank_one()), 3, 0},
          {"patterns", adapted(qwen3, with_patterns()), 3, 2},
          {"rank_24", adapted({}, everywhere(24)), 3, 0},
          {"some", adapted(qwen2, some), 3, 0},
          {"one_group", adapted({}, one), 1, 0},
          {"biases_apart", adapted(biases, everywhere(8)), 2, 3},
          {"packed", adapted({{"model_type", "phi3"}, {"pad_token_id", 0}}, everywhere(8))},
          {"gemma2", adapted({{"model_type", "gemma2"}, {"query_pre_attn_scalar", 64}}, everywhere(8))},
          {"four_bits", quantized(adapted(qwen3, everywhere(8)), four)},
          {"eight_bits", quantized(adapted(qwen3, everywhere(8)), eight)},
          {"micro_batches", repeated(adapted({}, everywhere(8)), 2)}};
}

Learned learned(Tried t, AdapterGemms gemms) {
  t.options.activation_dtype = t.options.dense_dtype = DType::bf16;
  t.choice.adapter_gemms = gemms;
  return step(t, kCuda, JoinProjections::on_gpus);
}

// Relative to the length of the expected gradient.
double distance(const std::vector<float>& got, const std::vector<float>& want) {
  double apart = 0, all = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    apart += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    all += std::pow(static_cast<double>(want[i]), 2);
  }
  EXPECT_GT(all, 0);
  return std::sqrt(apart / all);
}

class AdapterGemmsOnDevice : public ::testing::TestWithParam<AdapterCase> {};

// The result of a layer is rounded once, and not before the adapter is added, so gradients are as near to those in
// float32 as with separate GEMMs. Twice their distance leaves room for chance; 0.5% is a unit of bfloat16.
TEST_P(AdapterGemmsOnDevice, LearnWhatTheProcessorLearns) {
  const Learned joined = learned(GetParam().tried, AdapterGemms::joined),
                apart = learned(GetParam().tried, AdapterGemms::apart), want = step(GetParam().tried, {}, {});
  EXPECT_EQ(joined.times("adapter_columns"), kTriedLayers * GetParam().groups * GetParam().tried.micro_batches);
  EXPECT_EQ(apart.times("adapter_columns"), 0);
  // Each pass of a group over dy is a kernel with tiles and one that adds their sums.
  const int times = kTriedLayers * GetParam().tried.micro_batches;
  for (const Learned* both : {&joined, &apart})
    EXPECT_EQ(both->times("adapter_grads"), 2 * times * GetParam().groups_once);
  EXPECT_LT(joined.gemms(), apart.gemms());
  EXPECT_NEAR(joined.loss, want.loss, 5e-3 * want.loss);
  ASSERT_EQ(joined.gradients.size(), want.gradients.size());
  for (const auto& [name, gradient] : want.gradients) {
    const double with = distance(joined.gradients.at(name), gradient),
                 without = distance(apart.gradients.at(name), gradient);
    EXPECT_LT(without, 0.05) << name;
    EXPECT_LT(with, 2 * without + 5e-3) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdapterGemmsOnDevice, ::testing::ValuesIn(adapter_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(AdapterGemmsOnDevice, HaveTheSameBitsIfActivationsAreRecomputed) {
  Tried t = adapted({{"model_type", "qwen3"}}, with_patterns());
  const Learned all = learned(t, AdapterGemms::joined);
  for (const char* policy : {"selective", "block", "blocks:2"}) {
    t.choice.recompute = {RecomputePolicy::named(policy)};
    const Learned again = learned(t, AdapterGemms::joined);
    EXPECT_EQ(again.loss, all.loss) << policy;
    EXPECT_EQ(again.gradients, all.gradients) << policy;
  }
}

TEST(AdapterGemmsOnDevice, HaveTheSameBitsWithDenseCopies) {
  Tried t = quantized(adapted({{"model_type", "qwen3"}}, everywhere(8)), BnbConfig::Bits::four);
  const Learned expanded = learned(t, AdapterGemms::joined);
  t.choice.dense_copies = KeepCopies::yes;
  const Learned copied = learned(t, AdapterGemms::joined);
  EXPECT_GT(expanded.times("dequantize4"), copied.times("dequantize4"));
  EXPECT_EQ(copied.loss, expanded.loss);
  EXPECT_EQ(copied.gradients, expanded.gradients);
}

TEST(AdapterGemmsOnDevice, AreUsedWithManyTokensOnly) {
  Tried t = adapted({}, everywhere(8));
  constexpr int kWidth = 64;
  t.tokens = 2 * kWidth - 1;
  EXPECT_EQ(learned(t, AdapterGemms::by_size).times("adapter_columns"), 0);
  t.tokens = 2 * kWidth;
  EXPECT_GT(learned(t, AdapterGemms::by_size).times("adapter_columns"), 0);
}

using StrideOf = std::int64_t (*)(const Transformer&, AdapterGemms, const GroupInPass&);

/// A stride of each group of a layer (q, k, v; o; gate, up; down) with changed options.
std::vector<std::int64_t> strides_of(StrideOf stride, const std::function<void(TransformerOptions&)>& change) {
  TransformerOptions options = adapted({}, everywhere(8)).options;
  options.config = parse_model_config(dense().config, "tried");
  options.activation_dtype = options.dense_dtype = DType::bf16;
  change(options);
  const Transformer model(kCuda, options);
  std::vector<std::int64_t> found;
  for (const LinearGroup& group : model.layers().front().groups)
    found.push_back(stride(model, AdapterGemms::joined, {.layer = 0, .group = group, .tokens = 64}));
  return found;
}

// Dropout masks the input of adapters only, DoRA scales sums, float32 results keep their bits, and layers that are
// trained whole have gradients of their weights.
TEST(AdapterGemmsOnDevice, AreNotUsedWhereLayersAndAdaptersDiffer) {
  const auto strides = [](const auto& change) { return strides_of(joined_stride, change); };
  using ::testing::Each, ::testing::ElementsAre;
  // q, k, v (R = 24) and gate, up (R = 16) read norms, down the result of the gate; o reads that of attention. Rows
  // begin at multiples of 32 bytes.
  EXPECT_THAT(strides([](auto&) {}), ElementsAre(64 + 32, 0, 64 + 16, 192 + 16));
  EXPECT_THAT(strides([](auto& o) { o.lora->dropout = 0.5; }), Each(0));
  EXPECT_THAT(strides([](auto& o) { o.lora->dora = true; }), Each(0));
  EXPECT_THAT(strides([](auto& o) { o.fp8 = Fp8Recipe::tensorwise; }), Each(0));
  EXPECT_THAT(strides([](auto& o) { o.activation_dtype = DType::f32; }), Each(0));
  EXPECT_THAT(strides([](auto& o) { o.weight_dtype = DType::f32; }), Each(0));
  EXPECT_THAT(strides([](auto& o) { o.lora->targets = {"o_proj", "down_proj"}; }), ElementsAre(0, 0, 0, 192 + 16));
  EXPECT_THAT(strides([](auto& o) { o.lora->modules_to_save = {"up_proj"}; }), ElementsAre(64 + 32, 0, 0, 192 + 16));
  EXPECT_THAT(strides([](auto& o) {
                o.quantization.emplace();
                o.quantization->bnb.skip_modules = {"k_proj"};
              }),
              ElementsAre(0, 0, 64 + 16, 192 + 16));
}

// dy is copied with columns beside it, which moves less than dx only if there are fewer outputs.
TEST(AdapterGemmsOnDevice, AreThoseOfDxForSingleLayersWithFewerOutputs) {
  const auto strides = [](const auto& change) { return strides_of(joined_gradient_stride, change); };
  using ::testing::Each, ::testing::ElementsAre;
  EXPECT_THAT(strides([](auto&) {}), ElementsAre(0, 64 + 16, 0, 64 + 16));
  EXPECT_THAT(strides([](auto& o) { o.lora->r = 16; }), ElementsAre(0, 64 + 16, 0, 64 + 16));
  for (const std::int64_t other : {3, 24}) EXPECT_THAT(strides([&](auto& o) { o.lora->r = other; }), Each(0)) << other;
  EXPECT_THAT(strides([](auto& o) { o.config.intermediate_size = 56; }), ElementsAre(0, 64 + 16, 0, 0));
  EXPECT_THAT(strides([](auto& o) { o.lora->dropout = 0.5; }), Each(0));
  EXPECT_THAT(strides([](auto& o) { o.fp8 = Fp8Recipe::tensorwise; }), Each(0));
  EXPECT_THAT(strides([](auto& o) { o.activation_dtype = DType::f32; }), Each(0));
  EXPECT_THAT(strides([](auto& o) { o.lora->targets = {"q_proj", "down_proj"}; }), ElementsAre(0, 0, 0, 64 + 16));
}

}  // namespace
}  // namespace qtrain::testing
