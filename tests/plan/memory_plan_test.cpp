#include "plan/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/gpus.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConfig = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 400,
  "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 16, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu"})";

/// A run of 8 x 2 rows of 128 tokens on a device with this much memory.
class Planned : public ::testing::Test {
 protected:
  Planned() : model_(Device{}, {.config = parse_model_config(parse_json(kConfig, "config"), "config")}) {}
  PlannedRun run(std::size_t memory) {
    const BatchSize largest{.tokens = 8 * 128, .positions = 128, .targets = 8 * 128};
    return {.model = model_,
            .optimizer = plan_state({}, model_),
            .work = {.train = largest, .micro_batching = {8, 2}},
            .target = {.memory = memory}};
  }
  std::size_t bytes(const char* policy) { return memory_plan(run(0), RecomputePolicy::named(policy)).total(); }

  Transformer model_;
};

TEST(MemoryTable, SmallPartsAreNot0MiB) {
  EXPECT_EQ((MemoryPlan{{{"inputs", 300}, {"none", 0}, {"model_weights", 5 << 20}, {"logits", 700 << 10}}}.table()),
            "model weights 5 MiB, logits 700 KiB, inputs 1 KiB");
}

TEST_F(Planned, EachPolicyOfTheListNeedsLess) {
  EXPECT_LT(bytes("selective"), bytes("none"));
  EXPECT_LT(bytes("block"), bytes("selective"));
  EXPECT_LT(bytes("blocks:2"), bytes("block"));
  EXPECT_LT(bytes("blocks:4"), bytes("blocks:2"));
}

TEST_F(Planned, TakesTheFastestPolicyThatFits) {
  EXPECT_EQ(fastest_policy(run(0)).name(), "none") << "unknown memory";
  EXPECT_EQ(fastest_policy(run(bytes("none"))).name(), "none");
  EXPECT_EQ(fastest_policy(run(bytes("none") - 1)).name(), "selective");
  EXPECT_EQ(fastest_policy(run(bytes("block"))).name(), "block");
  EXPECT_EQ(fastest_policy(run(bytes("block") - 1)).name(), "blocks:2");
  EXPECT_EQ(fastest_policy(run(1)).name(), "blocks:4") << "if none fits, the one with the least memory";
}

TEST_F(Planned, AutoPlansWhatItChose) {
  PlannedRun planned = run(bytes("block"));
  const MemoryPlan plan = plan_run(planned, "auto");
  EXPECT_EQ(planned.policy().name(), "block");
  EXPECT_EQ(plan.total(), bytes("block"));
}

TEST_F(Planned, StateIsPagedOnlyWhereNoPolicyFitsWithIt) {
  const auto settled = [&](std::size_t memory, Pages pages) {
    PlannedRun planned = run(memory);
    planned.optimizer.memory = {.state = 10'000'000, .pinned = 10'000'000, .chunks = 1'000'000};
    planned.optimizer.pages = pages;
    const std::string policy = settle_policy(planned, "auto").name();
    return std::pair(policy, planned.optimizer.placement);
  };
  PlannedRun whole = run(0);
  whole.optimizer.memory = {.state = 10'000'000, .pinned = 10'000'000, .chunks = 1'000'000};
  const std::size_t least = memory_plan(whole, RecomputePolicy::named("blocks:4")).total();
  EXPECT_EQ(settled(0, Pages::where_needed), std::pair(std::string("none"), Placement::device));
  EXPECT_EQ(settled(least, Pages::where_needed), std::pair(std::string("blocks:4"), Placement::device));
  EXPECT_EQ(settled(least - 1, Pages::where_needed).second, Placement::pinned);
  EXPECT_NE(settled(least - 1, Pages::where_needed).first, "blocks:4") << "the freed memory is used";
  EXPECT_EQ(settled(least - 1, Pages::never), std::pair(std::string("blocks:4"), Placement::device));
}

TEST_F(Planned, FindsTheLargestMicroBatchesOfAsManyRows) {
  const auto fitting = [&](std::size_t memory) {
    const MicroBatching m = fitting_micro_batching(run(memory));
    return std::pair(m.micro_batch_size, m.gradient_accumulation_steps);
  };
  EXPECT_EQ(fitting(bytes("none")), (std::pair<std::int64_t, std::int64_t>(4, 4)));
  // The memory limit is between those of batches of 2 and 4 rows.
  PlannedRun two = run(0);
  two.work.train = {.tokens = 256, .positions = 128, .targets = 256};
  EXPECT_EQ(fitting(memory_plan(two).total()), (std::pair<std::int64_t, std::int64_t>(2, 8)));
  EXPECT_EQ(fitting(1).second, 0);
}

TEST_F(Planned, SaysWhatSavesMost) {
  PlannedRun planned = run(bytes("block"));
  const Error e = test::error_of([&] { plan_run(planned, "none"); });
  EXPECT_EQ(e.kind(), ErrorKind::memory);
  EXPECT_THAT(e.text().cause, HasSubstr("activations"));
  const std::string& remedy = e.text().remedy;
  EXPECT_THAT(remedy, HasSubstr("gradient_accumulation_steps"));
  const auto best = remedy.find("gradient_checkpointing=blocks:4 saves"), block = remedy.find("=true saves"),
             worst = remedy.find("=selective saves");
  EXPECT_TRUE(best < block && block < worst && worst != std::string::npos) << remedy;
  EXPECT_EQ(remedy.substr(block, remedy.find(';', block) - block).ends_with("and fits"), true) << remedy;
  EXPECT_EQ(remedy.substr(worst, remedy.find(';', worst) - worst).ends_with("and fits"), false) << remedy;
}

TEST_F(Planned, SeveralRanksAreToldToShareTokens) {
  const auto remedy_for = [&](int ranks) {
    PlannedRun planned = run(1);
    planned.ranks = ranks;
    return test::error_of([&] { plan_run(planned, "none"); }).text().remedy;
  };
  const std::string way = "context_parallel_size=2 with gradient_accumulation_steps=4 saves";
  EXPECT_THAT(remedy_for(4), HasSubstr(way));
  for (const int ranks : {1, 3})
    EXPECT_THAT(remedy_for(ranks), ::testing::Not(HasSubstr("context_parallel_size"))) << ranks;
}

TEST(Gpus, AreFoundByTheirNames) {
  const auto name = [](const char* asked) {
    const GpuModel* gpu = find_gpu(asked);
    return std::string(gpu ? gpu->name : "none");
  };
  EXPECT_EQ(name("NVIDIA H100 80GB HBM3"), "H100 80GB");
  EXPECT_EQ(name("NVIDIA H100 PCIe"), "H100 PCIe");
  EXPECT_EQ(name("NVIDIA A100-SXM4-40GB"), "A100 40GB");
  EXPECT_EQ(name("NVIDIA GeForce RTX 4090"), "RTX 4090");
  EXPECT_EQ(name("rtx4090"), "RTX 4090");
  EXPECT_EQ(name("4060ti"), "RTX 4060 Ti");
  EXPECT_EQ(name("a100"), "A100 80GB");
  EXPECT_EQ(name("NVIDIA A100-PCIE-40GB"), "A100 PCIe 40GB");
  EXPECT_EQ(name("NVIDIA A100 80GB PCIe"), "A100 PCIe 80GB");
  EXPECT_EQ(name("NVIDIA H200"), "H200");
  EXPECT_EQ(name("NVIDIA H200 NVL"), "H200 NVL");
  // These have less or more memory than another GPU whose name begins with the same words.
  EXPECT_EQ(name("NVIDIA GeForce RTX 4060"), "RTX 4060");
  EXPECT_EQ(name("5070"), "RTX 5070");
  EXPECT_EQ(name("NVIDIA GeForce RTX 5070 Ti"), "RTX 5070 Ti");
  for (const char* other : {"NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4080 SUPER", "NVIDIA GeForce RTX 4090 Laptop GPU"})
    EXPECT_EQ(name(other), "none") << other;
  EXPECT_EQ(name("L4"), "L4");
  EXPECT_EQ(name("NVIDIA L40S"), "L40S");
  EXPECT_EQ(name("Tesla V100-SXM2-32GB"), "V100 32GB");
  EXPECT_EQ(name("NVIDIA GeForce GTX 1080 Ti"), "GTX 1080 Ti");
  EXPECT_EQ(name("Radeon"), "none");
  EXPECT_EQ(name("80"), "none");
  EXPECT_EQ(name(""), "none");
}

// Every row of gpus.yaml, and what its architecture implies.
TEST(Gpus, HaveWhatTheirArchitectureHas) {
  for (const GpuModel& gpu : gpu_models()) {
    SCOPED_TRACE(gpu.name);
    EXPECT_EQ(find_gpu(gpu.name), &gpu);
    EXPECT_FALSE(gpu.source.empty());
    EXPECT_EQ(gpu.half > 0, gpu.major >= 7) << "tensor cores came with Volta";
    EXPECT_EQ(gpu.tf32 > 0, gpu.major >= 8) << "TF32 came with Ampere";
    EXPECT_NEAR(gpu.tf32 > 0 ? gpu.half / gpu.tf32 : 2, 2, 0.03) << "TF32 is half as fast as 16 bits";
    EXPECT_EQ(gpu.has_kernels(), gpu.major > 7 || gpu.minor >= 5);
    EXPECT_GT(usable_memory(gpu), std::size_t{6} << 30);
    for (const MatmulPrecision p : {MatmulPrecision::tf32, MatmulPrecision::f16})
      EXPECT_GE(gpu.teraflops(p), gpu.teraflops(MatmulPrecision::storage));
  }
  EXPECT_EQ(find_gpu("P100")->lacks(), "no tensor cores, no bfloat16");
  EXPECT_EQ(find_gpu("T4")->lacks(), "no bfloat16, no TF32");
  EXPECT_EQ(find_gpu("RTX 4090")->lacks(), "");
  EXPECT_EQ(find_gpu("P100")->teraflops(MatmulPrecision::bf16), find_gpu("P100")->float32);
}

}  // namespace
}  // namespace qtrain
