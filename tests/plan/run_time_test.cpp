#include "plan/run_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/formats/json.h"
#include "plan/adapter_passes.h"

namespace qtrain {
namespace {

constexpr const char* kTimedModel = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 400,
  "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu"})";
constexpr Device kGpu{.kind = DeviceKind::cuda};

TransformerOptions frozen_with(std::optional<LoraConfig> lora) {
  return {.config = parse_model_config(parse_json(kTimedModel, "config"), "config"),
          .base = Update::frozen,
          .lora = std::move(lora)};
}

LoraConfig adapter(std::vector<std::string> targets) {
  return {.r = 8, .targets = std::move(targets)};
}

// Layers that share an input: q, k, v (64 in, 128 out), o (64, 64), gate and up (64, 256), down (128, 64).
TEST(AdapterPasses, AreWhatItsGemmsReadAndWrite) {
  struct Case {
    const char* name;
    Device device;
    LoraConfig lora;
    double forward, backward;  // of a layer
  };
  LoraConfig dropped = adapter({"q_proj"}), decomposed = adapter({"q_proj"});
  dropped.dropout = 0.1;
  decomposed.dora = true;
  const Case cases[] = {
      {"all on a GPU", kGpu, adapter({"all-linear"}), 320 + 512 + 128 + 3 * 56, 2 * 320 + 2 * 512 + 3 * 56},
      {"all on a processor", Device{}, adapter({"all-linear"}), 320 + 3 * 56, 320 + 2 * 512 + 3 * 56},
      {"one of three that read an input", kGpu, adapter({"v_proj"}), 64 + 32 + 3 * 8, 2 * 64 + 2 * 32 + 3 * 8},
      {"with dropout", kGpu, dropped, 3 * 64 + 64 + 3 * 8, 7 * 64 + 2 * 64 + 3 * 8},
      {"with a magnitude", kGpu, decomposed, 64 + 3 * 64 + 3 * 8, 2 * 64 + 9 * 64 + 3 * 8},
  };
  for (const Case& c : cases) {
    const AdapterPasses passes = adapter_passes(Transformer(c.device, frozen_with(c.lora)));
    EXPECT_EQ(passes.forward, 3 * c.forward) << c.name;
    EXPECT_EQ(passes.backward, 3 * c.backward) << c.name;
    EXPECT_EQ(passes.head, 0) << c.name;
  }
  EXPECT_EQ(adapter_passes(Transformer(kGpu, frozen_with({}))).forward, 0);
  EXPECT_EQ(adapter_passes(Transformer(kGpu, frozen_with(adapter({"lm_head"})))).head,
            (64 + 400 + 3 * 8) + (2 * 64 + 2 * 400 + 3 * 8));
}

// With many tokens, those of q, k, v, of gate and up, and of down are in the GEMMs of these layers, and the gradients
// of o's and down's inputs in one GEMM each.
TEST(AdapterPasses, LeaveOutTheResultsOfGemmsWithAdapters) {
  TransformerOptions options = frozen_with(adapter({"all-linear"}));
  options.activation_dtype = options.weight_dtype = DType::bf16;
  const Transformer model(kGpu, std::move(options));
  constexpr std::int64_t kFew = 127, kMany = 256;
  const AdapterPasses apart = adapter_passes(model, AdapterGemms::by_size, kFew),
                      some = adapter_passes(model, AdapterGemms::by_size, kMany);
  EXPECT_EQ(apart.forward, adapter_passes(model).forward);
  EXPECT_EQ(apart.forward - some.forward, 3 * (128 + 256 + 2 * 64)) << "written before, that of down also read";
  EXPECT_NEAR(apart.backward - some.backward, 3 * ((64 + 128) - 2 * 64), 1e-9) << "likewise; dy is copied";
  EXPECT_NEAR(apart.backward, 3 * (2 * 320 + 1.3 * 512 + 3 * 56), 1e-9) << "dy is read once, with sums";
  EXPECT_EQ(joined_adapters(model, AdapterGemms::by_size, {.layer = 1, .tokens = kFew}).groups, 0);
  const JoinedAdapters joined = joined_adapters(model, AdapterGemms::by_size, {.layer = 1, .tokens = kMany});
  EXPECT_EQ(joined.groups, 3);
  EXPECT_EQ(joined.adapters, 6);
  EXPECT_EQ(joined.weights, 64 * (128 + 256 + 128));
  EXPECT_EQ(joined.gradient_weights, 64 * (64 + 128));
  EXPECT_EQ(joined.launches_once, 4);
  EXPECT_EQ(joined.adapters_once, 7);
}

// With the same frozen weights, more adapters take longer, by more than their few FLOPs.
TEST(StepTime, AdaptersTakeTimeBesideTheirLayers) {
  const auto seconds = [](std::optional<LoraConfig> lora) {
    Transformer model(kGpu, frozen_with(std::move(lora)));
    const PlannedRun run{.model = model, .optimizer = plan_state({}, model), .target = {.device = kGpu}};
    const StepWork work{.mix = {.context = 128}, .micro_batch_tokens = 1024, .micro_batches = 2};
    return step_time(run, work, DeviceSpeed{.flops = 1e12, .bandwidth = 1e11});
  };
  const StepTime none = seconds({}), one = seconds(adapter({"q_proj"})), all = seconds(adapter({"all-linear"}));
  EXPECT_EQ(none.adapters, 0);
  EXPECT_LT(none.seconds(), one.seconds());
  EXPECT_LT(one.seconds(), all.seconds());
  // f32 activations: 4 bytes per element, 3 layers, 2,048 tokens.
  EXPECT_DOUBLE_EQ(all.adapters, 2048.0 * 3 * 4 * (1128 + 1832) / 1e11);
  EXPECT_DOUBLE_EQ(all.seconds(), std::max(all.computing, all.memory) + all.adapters + all.update);
}

const GpuModel& gpu_named(std::string_view name) {
  return *find_gpu(name);
}

// Attention on an H200 is slower than its GEMMs would be, and its gradient takes longer per FLOP than its forward pass.
// An A100, with a third of the FLOP/s, is slower.
TEST(AttentionSeconds, FollowFromCyclesAndOperations) {
  const KernelShares shares = kernel_shares(1024);
  const auto of = [&](const char* name) { return attention_seconds(gpu_named(name), shares).value(); };
  const AttentionSeconds h200 = of("H200"), a100 = of("A100 80GB");
  EXPECT_GT(h200.forward, 1.3 / (gpu_named("H200").half * 1e12));
  EXPECT_GT(h200.backward, 1.2 * h200.forward);
  EXPECT_GT(a100.forward, 1.2 * h200.forward);
  // Kernel by kernel, for the 28 layers of Qwen3-0.6B and 16,384 tokens in rows of 2,048.
  const Json steps = read_json(QTRAIN_SOURCE_DIR "/bench/step_cases.json");
  const Json& predicted = steps.at("cases").at("qwen3-0.6b").at("predicted_ms");
  const double flops = 28 * 2.0 * 2048 * 2048 * 16384, forward = predicted.at("attention forward").get<double>(),
               backward = predicted.at("attention backward").get<double>();
  EXPECT_NEAR(1e3 * flops * h200.forward, forward, 0.1 * forward);
  // Without the traffic to memory and the kernel for delta, which take 12 % of it.
  EXPECT_NEAR(1e3 * 2 * flops * h200.backward, backward, 0.15 * backward);
  EXPECT_FALSE(attention_seconds(gpu_named("T4"), shares)) << "kernels without tensor cores have no counts";
}

TEST(KernelShares, AreThoseOfTheWidth) {
  EXPECT_LT(kernel_shares(64).gemm, kernel_shares(4096).gemm);
  EXPECT_EQ(kernel_shares(64).gemm, kernel_shares(1024).gemm);
  EXPECT_EQ(kernel_shares(4096).gemm, kernel_shares(8192).gemm);
  EXPECT_GT(kernel_shares(2048).gemm, kernel_shares(1024).gemm);
  for (const Ranged<SheetShares>& s : {sheet_shares(1024), sheet_shares(8192)}) {
    EXPECT_LT(s.slow.kernels->gemm, s.usual.kernels->gemm);
    EXPECT_LT(s.usual.kernels->gemm, s.fast.kernels->gemm);
    EXPECT_GT(s.slow.kernels->overlap, s.fast.kernels->overlap);
  }
  EXPECT_FALSE(sheet_shares(1024, 0.4).usual.kernels);
}

// On a GPU, the kernels between GEMMs take time of their own, and so does each launch.
TEST(StepTime, KernelsOfAGpuRunOneAfterAnother) {
  const auto time = [](std::optional<LoraConfig> lora, double micro_batches) {
    TransformerOptions options = frozen_with(std::move(lora));
    options.activation_dtype = DType::bf16;
    Transformer model(kGpu, std::move(options));
    const PlannedRun run{.model = model, .optimizer = plan_state({}, model), .target = {.device = kGpu}};
    const StepWork work{.mix = {.context = 128}, .micro_batch_tokens = 1024, .micro_batches = micro_batches};
    return step_time(run, work, published_speed(gpu_named("H200"), MatmulPrecision::bf16, sheet_shares(64)).usual);
  };
  const StepTime none = time({}, 2), all = time(adapter({"all-linear"}), 2), twice = time({}, 4);
  EXPECT_TRUE(none.serial);
  for (const double StepTime::*part :
       {&StepTime::computing, &StepTime::attention, &StepTime::memory, &StepTime::gaps}) {
    EXPECT_GT(none.*part, 0);
    EXPECT_DOUBLE_EQ(twice.*part, 2 * none.*part);
  }
  EXPECT_DOUBLE_EQ(none.seconds(), none.computing + none.attention + none.memory + none.gaps + none.update);
  EXPECT_EQ(none.adapters, 0);
  EXPECT_GT(all.adapters, 0);
  EXPECT_DOUBLE_EQ(all.attention, none.attention);
  EXPECT_DOUBLE_EQ(all.memory, none.memory);
  // Three blocks with seven linear layers, each with six launches more, in two micro-batches; two of them are shared by
  // layers with one input.
  EXPECT_NEAR((all.gaps - none.gaps) / kernel_shares(64).gap_seconds, 2 * 3 * (7 * 6 - 2 * (7 - 4)), 1e-6);
  EXPECT_GT(all.seconds(), 1.2 * none.seconds());
}

TEST(SheetShares, GrowWithTheWidthAndAreOneWhereTheyAreGiven) {
  struct Case {
    std::int64_t width;
    double least, most;  // bounds of all three cases
  };
  Ranged<SheetShares> before{};
  for (const Case& c :
       {Case{64, 0.28, 0.48}, {2048, 0.28, 0.48}, {2560, 0.33, 0.55}, {4096, 0.5, 0.62}, {16384, 0.5, 0.62}}) {
    const Ranged<SheetShares> s = sheet_shares(c.width);
    EXPECT_GE(s.slow.flops, c.least) << c.width;
    EXPECT_LE(s.fast.flops, c.most) << c.width;
    EXPECT_LT(s.slow.flops, s.usual.flops) << c.width;
    EXPECT_LT(s.usual.flops, s.fast.flops) << c.width;
    EXPECT_LT(s.slow.bandwidth, s.fast.bandwidth) << c.width;
    EXPECT_LE(before.usual.flops, s.usual.flops) << c.width;
    before = s;
  }
  EXPECT_EQ(sheet_shares(2048).usual.flops, 0.3);
  for (const std::int64_t width : {64, 4096}) {
    const Ranged<SheetShares> given = sheet_shares(width, 0.37);
    for (const SheetShares& s : {given.slow, given.usual, given.fast}) {
      EXPECT_EQ(s.flops, 0.37) << width;
      EXPECT_EQ(s.bandwidth, given.usual.bandwidth) << width;
    }
  }
}

}  // namespace
}  // namespace qtrain
