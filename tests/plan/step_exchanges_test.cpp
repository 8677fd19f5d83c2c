#include "plan/step_exchanges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The matrices of a block have 256, 128, 128 and 256 elements for attention and three times 512; there are two norms of
// 16, and 1,296 elements outside the block: two tables of 40 rows, and a norm.
constexpr const char* kOneBlock = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 40,
  "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu"})";
constexpr Device kDeclaredGpu{DeviceKind::cuda};

StepExchanges exchanges_of(Device device, const Sharding& sharding, const ReductionOptions& reduction) {
  const int ranks = sharding.ranks * sharding.replicas;
  Transformer model(device,
                    {.config = parse_model_config(parse_json(kOneBlock, "config"), "config"), .sharding = sharding});
  return step_exchanges(model, reduction, ranks);
}

std::vector<std::string> names(const std::vector<ExchangeCall>& calls) {
  std::vector<std::string> all;
  for (const ExchangeCall& call : calls) all.push_back(call.name);
  return all;
}

double bytes(const std::vector<ExchangeCall>& calls) {
  double sum = 0;
  for (const ExchangeCall& call : calls) sum += call.bytes;
  return sum;
}

// Each of three ranks sums as many elements as if every parameter were split among them: 2 * 86 + 2 * 43 + 3 * 171 + 2
// * 6 of the block, and 2 * 214 + 6 of the others.
TEST(StepExchanges, OfUnshardedGradientsOnProcessors) {
  const StepExchanges step = exchanges_of({}, {.ranks = 3}, {});
  EXPECT_THAT(step.micro_batch, IsEmpty());
  EXPECT_THAT(names(step.step), ElementsAre("all_to_all of 3651 float32", "all_gather of 1217 float32"));
  EXPECT_EQ(bytes(step.step), 2 * 3651 * 4) << "each exchange moves all of them";
  const StepExchanges in_order =
      exchanges_of({}, {.ranks = 3}, {.order = ReductionOrder::micro_batches, .wire = DType::bf16});
  EXPECT_THAT(names(in_order.micro_batch), ElementsAre("all_to_all of 3651 bfloat16"));
  EXPECT_THAT(names(in_order.step), ElementsAre("all_gather of 1217 float32"));
}

// NCCL adds the gradients where they are, or copies in bfloat16.
TEST(StepExchanges, OfUnshardedGradientsOnGpus) {
  EXPECT_THAT(names(exchanges_of(kDeclaredGpu, {.ranks = 2}, {}).step), ElementsAre("all_reduce of 3632 float32"));
  EXPECT_THAT(names(exchanges_of(kDeclaredGpu, {.ranks = 2}, {.wire = DType::bf16}).step),
              ElementsAre("all_reduce of 3632 bfloat16"));
}

// Every parameter of the block takes 1,024 elements; the rows of two ranks have 5,120 each.
TEST(StepExchanges, OfShards) {
  const Sharding one{.stage = ZeroStage::gradients, .ranks = 2};
  const StepExchanges::Unit block = exchanges_of({}, one, {}).units[1],
                            on_gpu = exchanges_of(kDeclaredGpu, one, {}).units[1];
  EXPECT_THAT(names(block.gather), ElementsAre("all_gather of 5120 float32"));
  EXPECT_THAT(names(block.reduce), ElementsAre("all_to_all of 10240 float32"));
  EXPECT_THAT(names(on_gpu.reduce), ElementsAre("reduce_scatter of 10240 float32"));
  EXPECT_THAT(block.settle, IsEmpty());
}

// In order, each of four ranks sums a quarter; otherwise each sum of a row is exchanged between two groups.
TEST(StepExchanges, OfShardsInGroups) {
  const Sharding groups{.stage = ZeroStage::gradients, .ranks = 2, .replicas = 2};
  const StepExchanges::Unit exact = exchanges_of({}, groups, {}).units[1];
  EXPECT_THAT(names(exact.settle), ElementsAre("all_reduce of 5120 float32"));
  EXPECT_EQ(exact.reduce[0].among, Among::group);
  EXPECT_EQ(exact.settle[0].among, Among::replicas);
  const StepExchanges::Unit rounded = exchanges_of({}, groups, {.wire = DType::bf16}).units[1];
  EXPECT_THAT(names(rounded.settle), ElementsAre("all_to_all of 5120 bfloat16", "all_gather of 2560 bfloat16"));
  const StepExchanges::Unit in_order = exchanges_of({}, groups, {.order = ReductionOrder::micro_batches}).units[1];
  EXPECT_THAT(names(in_order.reduce), ElementsAre("all_to_all of 10240 float32"));
  EXPECT_EQ(in_order.reduce[0].among, Among::all);
  EXPECT_THAT(names(in_order.settle), ElementsAre("all_gather of 2560 float32"));
}

}  // namespace
}  // namespace qtrain
