// Noise on the embeddings (NEFTune) on a GPU: curves of transformers' Trainer with the same noise, and the same bits
// whether CUDA graphs are replayed or not.
#include "tests/e2e/cuda_run.h"
#include "tests/e2e/noisy_curves.h"

namespace qtrain::e2e {
namespace {

class CudaNoisyCurve : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaNoisyCurve, IsThatOfTransformers) {
  expect_noisy_curve(GetParam(), "cuda");
}

INSTANTIATE_TEST_SUITE_P(All, CudaNoisyCurve, ::testing::Values("neftune_llama", "neftune_gemma3", "neftune_lora"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(CudaRun, NoiseIsTheSameWithGraphsAndWithout) {
  const Json noisy{{"neftune_noise_alpha", 10}, {"bf16", true}, {"max_steps", 4}};
  Json plain = noisy, apart = noisy;
  plain["neftune_noise_alpha"] = nullptr;
  apart["use_cuda_graphs"] = false;
  const std::string whole = trained(config(noisy));
  EXPECT_EQ(trained(config(apart)), whole);
  EXPECT_NE(trained(config(plain)), whole);
}

}  // namespace
}  // namespace qtrain::e2e
