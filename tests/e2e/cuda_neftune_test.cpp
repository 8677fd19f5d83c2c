// Noise on the embeddings (NEFTune) on a GPU: curves of transformers' Trainer with the same noise, and the same bits
// whether CUDA graphs are replayed or not.
#include "tests/e2e/cuda_run.h"

namespace qtrain::e2e {
namespace {

class CudaNoisyCurve : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaNoisyCurve, IsThatOfTransformers) {
  const TempFolder output;
  const fs::path folder = source_folder() / "tests/train/recipe_goldens" / GetParam();
  qtrain_ok({.words = {"config.json", "output_dir=" + (output / "out").string(), "threads=1", "device=cuda"},
             .folder = folder});
  const Json expected = read_json(folder / "expected.json");
  const auto rows = history(output / "out", "loss");
  ASSERT_EQ(rows.size(), expected.at("steps").size());
  const auto within = [&](const char* what) { return 4 * expected.at("spread").at(what).get<double>() + 1e-6; };
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const char* what : {"loss", "grad_norm"})
      EXPECT_NEAR(rows[i].at(what), expected.at("steps")[i].at(what), within(what)) << what << ", step " << i + 1;
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
