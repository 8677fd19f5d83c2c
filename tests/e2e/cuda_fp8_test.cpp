// Training with the GEMMs of linear layers in FP8.
#include "tests/e2e/cuda_run.h"

namespace qtrain::e2e {
namespace {

class CudaFp8 : public CudaRun {
 protected:
  /// Compares the losses of eight steps in bfloat16 and in FP8. A number in E4M3 is off by up to 6 %, but errors
  /// average out in the sums of a GEMM.
  void expect_near_losses(const Json& c, const char* recipe) {
    Json changed = c;
    changed["fp8_recipe"] = recipe;
    changed["fp8_forward"] = true;
    trained(c);
    const std::vector<double> bf16 = losses();
    changed["fp8"] = true;
    trained(changed);
    const std::vector<double> fp8 = losses();
    ASSERT_EQ(fp8.size(), bf16.size());
    EXPECT_NE(fp8, bf16);
    for (std::size_t i = 0; i < fp8.size(); ++i) EXPECT_NEAR(fp8[i], bf16[i], 0.01 * bf16[i]) << "step " << i + 1;
    EXPECT_LT(fp8.back(), fp8.front() - 0.5 * (bf16.front() - bf16.back())) << "it should learn at least half as much";
  }
};

TEST_F(CudaFp8, LearnsAllWeightsAsBfloat16Does) {
  for (const char* recipe : {"tensorwise", "auto"})
    expect_near_losses(config({{"bf16", true}, {"max_steps", 8}}), recipe);
}

TEST_F(CudaFp8, LearnsAdaptersAsBfloat16Does) {
  for (const char* recipe : {"tensorwise", "blockwise"})
    expect_near_losses(lora({{"bf16", true}, {"max_steps", 8}, {"load_in_4bit", true}}), recipe);
}

// Frozen weights are encoded once instead of for each GEMM, and shared by all GEMMs: nothing else changes. The model's
// sizes are multiples of those at which q, k, v and gate, up are one GEMM of dense weights, too.
TEST_F(CudaFp8, LearnsOnFrozenWeightsInFp8AsOnDenseOnes) {
  Json sizes = read_json(folder_ / "model/config.json");
  sizes.update({{"hidden_size", 64}, {"intermediate_size", 128}});
  write_file(folder_ / "model/config.json", sizes.dump());
  Json c = lora({{"bf16", true}, {"max_steps", 3}, {"fp8", true}, {"fp8_forward", true}, {"fp8_recipe", "tensorwise"}});
  const std::string dense = trained(c);
  const std::vector<double> expected = losses();
  c["load_in_fp8"] = true;
  EXPECT_TRUE(trained(c) == dense) << "the adapters differ";
  EXPECT_EQ(losses(), expected);
}

// Any device runs the same config: without FP8 GEMMs, weights are expanded, to the same numbers on each. Only sums are
// in another order.
TEST_F(CudaFp8, ExpandsFrozenWeightsForOtherGemms) {
  Json c = lora({{"max_steps", 3}, {"load_in_fp8", true}});
  trained(c);
  const std::vector<double> gpu = losses();
  c["device"] = "cpu";
  trained(c);
  const std::vector<double> cpu = losses();
  ASSERT_EQ(gpu.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(gpu[i], cpu[i], 1e-5 * cpu[i]) << "step " << i + 1;
}

TEST_F(CudaFp8, HasNoEffectInFloat32) {
  const Outcome o = train_ok(folder_.path(), config({{"fp8", true}, {"max_steps", 1}}));
  EXPECT_THAT(o.err, ::testing::HasSubstr("fp8"));
}

}  // namespace
}  // namespace qtrain::e2e
