// Joined projections of one input compute on a GPU what separate projections compute on a CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/emulator/learned_step.h"

namespace qtrain::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Tried with_adapter(Tried t) {
  t.options.base = Update::frozen;
  t.options.lora = LoraConfig{.r = 4, .alpha = 8, .targets = {"q_proj", "v_proj", "gate_proj", "down_proj"}};
  return t;
}

Tried in_four_bits(Tried t, int tokens) {
  t = with_adapter(std::move(t));
  t.options.quantization = Quantization{};
  t.tokens = tokens;
  return t;
}

Tried in_fp8(Tried t) {
  t = with_adapter(std::move(t));
  t.options.quantization = Quantization{.fp8 = Fp8Storage{}};
  return t;
}

/// GEMMs in FP8 with scales for blocks, on frozen weights in FP8 or with all weights trained. 13 tokens are no multiple
/// of the 4 rows that the library wants.
Tried in_blocks(Tried t, Update base) {
  if (base == Update::frozen) t = in_fp8(std::move(t));
  if (base == Update::frozen) t.options.quantization->fp8->block = {ops::kFp8Block, ops::kFp8Block};
  t.options.fp8 = Fp8Recipe::blockwise;
  t.tokens = 13;
  return t;
}

void expect_near(const Learned& a, const Learned& b) {
  EXPECT_NEAR(a.loss, b.loss, 1e-5 * b.loss);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, want] : b.gradients) {
    const std::vector<float>& got = a.gradients.at(name);
    ASSERT_EQ(got.size(), want.size()) << name;
    float largest = 0;
    for (const float v : want) largest = std::max(largest, std::abs(v));
    EXPECT_GT(largest, 0) << name;
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5F * largest) << name << " " << i;
  }
}

class JoinedOnDevice : public ::testing::TestWithParam<std::pair<const char*, Tried>> {};

TEST_P(JoinedOnDevice, LearnsWhatTheProcessorLearnsOneByOne) {
  const Learned joined = step(GetParam().second, kCuda, JoinProjections::on_gpus);
  expect_near(joined, step(GetParam().second, {}, JoinProjections::on_gpus));
  expect_near(joined, step(GetParam().second, kCuda, JoinProjections::never));
}

INSTANTIATE_TEST_SUITE_P(
    All, JoinedOnDevice,
    ::testing::Values(std::pair("llama", dense()), std::pair("qwen2", dense({{"model_type", "qwen2"}})),
                      std::pair("qwen3", dense({{"model_type", "qwen3"}})),
                      std::pair("gaps_between_weights", dense({{"intermediate_size", 33}, {"mlp_bias", true}})),
                      std::pair("lora", with_adapter(dense())),
                      std::pair("four_bits", in_four_bits(dense({{"model_type", "qwen2"}}), 12)),
                      std::pair("four_bits_few_rows", in_four_bits(dense(), 5)), std::pair("fp8", in_fp8(dense())),
                      std::pair("fp8_olmo2", in_fp8(dense({{"model_type", "olmo2"}})))),
    [](const auto& info) { return std::string(info.param.first); });

class BlocksOnDevice : public ::testing::TestWithParam<std::pair<const char*, Tried>> {};

// Sums in another order differ by 1e-7 of their size, which in a few numbers of a million makes a step of E4M3. A
// wrong scale changes a gradient by half or more.
TEST_P(BlocksOnDevice, LearnWhatTheProcessorLearns) {
  const Learned device = step(GetParam().second, kCuda, JoinProjections::on_gpus);
  for (const Learned& want : {step(GetParam().second, {}, JoinProjections::on_gpus),
                              step(GetParam().second, kCuda, JoinProjections::never)}) {
    EXPECT_NEAR(device.loss, want.loss, 1e-4 * want.loss);
    ASSERT_EQ(device.gradients.size(), want.gradients.size());
    for (const auto& [name, of_want] : want.gradients) {
      double apart = 0, length = 0;
      for (std::size_t i = 0; i < of_want.size(); ++i) {
        apart += std::pow(double{device.gradients.at(name)[i]} - of_want[i], 2);
        length += std::pow(double{of_want[i]}, 2);
      }
      EXPECT_GT(length, 0) << name;
      EXPECT_LT(apart, 1e-4 * length) << name;
    }
  }
}

// Widths at which each layer of a GEMM begins with a block.
const Json kAligned{{"intermediate_size", 256}, {"hidden_size", 144}};
INSTANTIATE_TEST_SUITE_P(All, BlocksOnDevice,
                         ::testing::Values(std::pair("full", in_blocks(dense(kAligned), Update::trained)),
                                           std::pair("lora", in_blocks(dense(kAligned), Update::frozen))),
                         [](const auto& info) { return std::string(info.param.first); });

// The codes and scales of all frozen weights, by name.
std::map<std::string, std::vector<std::byte>> stored_weights(const Tried& t, Device device) {
  Ctx ctx(device, MatmulPrecision::storage, 1);
  TransformerOptions options = t.options;
  options.config = parse_model_config(t.config, "tried");
  Transformer model(ctx, options);
  Runner runner(model, {t.choice, {{Pass::train, {.tokens = 4, .positions = 4, .targets = 3}}}});
  runner.initialize_weights(ctx, 3);
  std::map<std::string, std::vector<std::byte>> weights;
  for (const QuantizedLinear& q : model.quantized()) {
    const auto stored = std::get<Fp8Weight>(q.weight());
    std::vector<std::byte>& bytes = weights[q.name()];
    for (const ConstTensor& part : {stored.codes, stored.scales})
      read_chunks(ctx, part,
                  [&](ConstTensor chunk) { bytes.insert(bytes.end(), chunk.data, chunk.data + chunk.bytes()); });
  }
  return weights;
}

// Where layers are not one GEMM, on a CPU or with DoRA, they have the same numbers in FP8.
TEST(JoinedOnDevice, StoresTheSameNumbersInFp8) {
  for (const Json& family : {Json::object(), Json{{"model_type", "olmo2"}}}) {
    Tried t = in_fp8(dense(family));
    const auto joined = stored_weights(t, kCuda);
    EXPECT_EQ(joined.size(), 2u * 7);
    EXPECT_TRUE(stored_weights(t, {}) == joined) << family;
    t.options.lora->dora = true;
    EXPECT_TRUE(stored_weights(t, kCuda) == joined) << family << " with DoRA";
  }
}

// In each layer, q, k, v are one GEMM, and so are gate, up: forward, for dx, and for the gradient of the weight.
TEST(JoinedOnDevice, HasOneGemmForEachGroup) {
  const Tried t = dense();
  const Learned joined = step(t, kCuda, JoinProjections::on_gpus), apart = step(t, kCuda, JoinProjections::never);
  constexpr int kLayers = 2, kPasses = 3, kHead = 3;
  EXPECT_EQ(apart.gemms(), kLayers * kPasses * 7 + kHead);
  EXPECT_EQ(joined.gemms(), kLayers * kPasses * 4 + kHead);
}

// Biases of 896 elements have gaps between them, as they would in a sharded model.
TEST(JoinedOnDevice, HasOneGemmForEachGradientOfLayersWithBiasesApart) {
  const Learned joined = step(dense({{"model_type", "qwen2"}}), kCuda, JoinProjections::on_gpus);
  constexpr int kLayers = 2, kForward = 6, kGradients = 2 * 4, kHead = 3;
  EXPECT_EQ(joined.gemms(), kLayers * (kForward + kGradients) + kHead);
}

}  // namespace
}  // namespace qtrain::testing
