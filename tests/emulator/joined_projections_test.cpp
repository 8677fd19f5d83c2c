// Joined projections of one input compute on a GPU what separate projections compute on a CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/launch_times.h"
#include "core/transfer.h"
#include "tests/emulator/small_model.h"

namespace qtrain::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A model with heads of Qwen2.5-0.5B, and a batch of two documents.
struct Tried {
  Json config;
  TransformerOptions options;
  int tokens = 12;
};

Tried dense(Json more = Json::object()) {
  Json config = {{"model_type", "llama"},
                 {"vocab_size", 16},
                 {"hidden_size", 64},
                 {"intermediate_size", 192},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 14},
                 {"num_key_value_heads", 2},
                 {"head_dim", 64},
                 {"max_position_embeddings", 64},
                 {"rms_norm_eps", 1e-5},
                 {"tie_word_embeddings", true}};
  config.update(more);
  return {.config = config, .options = {}};
}

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

/// The gradients of a step by parameter, its loss, and its launches by name.
struct Learned {
  std::map<std::string, std::vector<float>> gradients;
  std::map<std::string, int> launches;
  double loss = 0;

  int gemms() const { return launches.contains("gemm") ? launches.at("gemm") : 0; }
};

Learned step(const Tried& t, Device device, JoinProjections join) {
  Ctx ctx(device, MatmulPrecision::storage, 1);
  TransformerOptions options = t.options;
  options.config = parse_model_config(t.config, "tried");
  options.join = join;
  const BatchSize size{.tokens = t.tokens, .positions = t.tokens, .targets = t.tokens - 1};
  Transformer model(ctx, options);
  Runner runner(model, {{}, {{Pass::train, size}}});
  runner.initialize_weights(ctx, 3);
  model.adapter().initialize(ctx, 4);
  for (Param& p : model.adapter().all())  // B, which starts at zero
    if (p.spec.name.ends_with("lora_B.weight"))
      write_values(ctx, p, [](std::int64_t first, Tensor part) {
        for (float& v : part.span<float>()) v = 0.1F * std::sin(static_cast<float>(first++));
      });
  runner.values_changed();
  model.weights().zero_grads(ctx);
  model.adapter().zero_grads(ctx);
  std::vector<std::int32_t> tokens, positions, rows, targets;
  for (std::int32_t i = 0; i < t.tokens; ++i) {
    tokens.push_back(i * 7 % 16);
    positions.push_back(i < 2 ? i : i - 2);
    if (i + 1 < t.tokens) rows.push_back(i), targets.push_back((i + 1) * 7 % 16);
  }
  const Integers ids(ctx, tokens), places(ctx, positions), borders(ctx, {0, 2, t.tokens}), which(ctx, rows),
      wanted(ctx, targets);
  const TokenBatch batch{.tokens = ids.view(),
                         .positions = places.view(),
                         .cu_seqlens = borders.view(),
                         .target_rows = which.view(),
                         .target_ids = wanted.view(),
                         .longest = t.tokens};
  const DeviceMemory numbers(device, 2 * sizeof(double));
  const double one_and_none[] = {1, 0};
  ctx.stream().copy(numbers.data(), one_and_none, sizeof one_and_none);
  const Tensor both{numbers.data(), DType::f64, {2}, device};
  Learned out;
  {
    LaunchTimes times(ctx.stream());
    runner.forward(ctx, batch,
                   {.pass = Pass::train, .loss_sum = accumulate(both.slice(1, 1)), .scale = both.slice(0, 1)});
    runner.backward(ctx, batch);
    for (const LaunchTimes::Row& r : times.rows()) out.launches[r.name] += static_cast<int>(r.launches);
  }
  HostCopy host(device);
  out.loss = host.of(ctx, both).as<double>()[1];
  for (const Param* p : model.trained()) {
    const auto values = host.of(ctx, p->grad).span<float>();
    out.gradients[p->spec.name] = {values.begin(), values.end()};
  }
  return out;
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
                      std::pair("four_bits_few_rows", in_four_bits(dense(), 5))),
    [](const auto& info) { return std::string(info.param.first); });

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
