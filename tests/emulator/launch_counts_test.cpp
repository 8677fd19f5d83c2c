// How many launches a micro-batch takes. On a GPU, each costs about a microsecond, even in a recorded graph.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <string>

#include "tests/emulator/small_model.h"

namespace qtrain::testing {
namespace {

constexpr int kLayers = 28;
constexpr int kDocuments = 4;  ///< enough rows for GEMMs with expanded weights

/// Qwen3-0.6B with all of its layers, but narrow.
ModelConfig narrow_qwen3() {
  return parse_model_config({{"model_type", "qwen3"},
                             {"vocab_size", 16},
                             {"hidden_size", 64},
                             {"intermediate_size", 64},
                             {"num_hidden_layers", kLayers},
                             {"num_attention_heads", 2},
                             {"num_key_value_heads", 1},
                             {"head_dim", 64},
                             {"max_position_embeddings", 8},
                             {"rms_norm_eps", 1e-6},
                             {"tie_word_embeddings", true}},
                            "narrow");
}

struct LaunchCase {
  std::string name;
  bool adapters = false, quantized = false;
  std::uint64_t most = 0;  ///< launches of a micro-batch, as in docs/kernels.md
};

void PrintTo(const LaunchCase& c, std::ostream* out) {
  *out << c.name;
}

// Lower these numbers in a commit that needs fewer launches.
const LaunchCase kLaunchCases[] = {{.name = "full", .most = 799},
                                   {.name = "lora", .adapters = true, .most = 1551},
                                   {.name = "qlora", .adapters = true, .quantized = true, .most = 1887}};

TransformerOptions options_of(const LaunchCase& c) {
  TransformerOptions o{.config = narrow_qwen3(), .activation_dtype = DType::bf16};
  if (!c.adapters) return o;
  o.base = Update::frozen;
  o.weight_dtype = o.dense_dtype = DType::bf16;
  o.lora = LoraConfig{.r = 8, .alpha = 16, .targets = {"all-linear"}};
  if (c.quantized) {
    o.quantization.emplace();
    o.quantization->source = DType::bf16;
    o.quantization->bnb.bits = BnbConfig::Bits::four;
    o.quantization->bnb.quant_type = FourBit::nf4;
    o.quantization->bnb.double_quant = true;
  }
  return o;
}

/// Counts what a stream queues, by name.
class LaunchNames final : public LaunchObserver {
 public:
  void begin(const Launched& launched) override { ++counts_[launched.name]; }
  void end() override {}

  std::string text() const {
    std::string all;
    for (const auto& [name, count] : counts_) all += fmt::format("\n{:>6} {}", count, name);
    return all;
  }
  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const auto& [name, count] : counts_) sum += count;
    return sum;
  }

 private:
  std::map<std::string, std::uint64_t> counts_;
};

class LaunchesOfAMicroBatch : public ::testing::TestWithParam<LaunchCase> {};

// Copies and fills are counted as well. Adapters are in the GEMMs of their layers, as with the many tokens of a run.
// Float32 weights have 16-bit copies, as in a run that has enough memory; quantized ones have no dense copies.
TEST_P(LaunchesOfAMicroBatch, AreNotMoreThanBefore) {
  Ctx ctx(kCuda, MatmulPrecision::bf16, 1);
  Transformer model(kCuda, options_of(GetParam()));
  const KeepCopies copies = GetParam().adapters ? KeepCopies::no : KeepCopies::yes;
  Runner runner(model, {{.operand_copies = copies, .adapter_gemms = AdapterGemms::joined},
                        {{Pass::train, SmallBatch::size_of(kDocuments)}}});
  runner.initialize_weights(ctx, 1);
  runner.copies().fill_operands(ctx);
  if (GetParam().adapters) model.adapter().initialize(ctx, 5);
  for (ParamStore* store : {&model.weights(), &model.adapter()}) store->zero_grads(ctx);
  const SmallBatch batch(ctx, kDocuments);
  batch.forward_and_backward(ctx, runner);
  ctx.synchronize();
  LaunchNames names;
  ctx.stream().observe(&names);
  batch.forward_and_backward(ctx, runner);
  ctx.stream().observe(nullptr);
  ctx.synchronize();
  EXPECT_GT(names.total(), std::uint64_t{20} * kLayers);
  EXPECT_LE(names.total(), GetParam().most) << GetParam().name << names.text();
}

INSTANTIATE_TEST_SUITE_P(Cases, LaunchesOfAMicroBatch, ::testing::ValuesIn(kLaunchCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace qtrain::testing
