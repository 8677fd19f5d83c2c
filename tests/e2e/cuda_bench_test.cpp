#include "tests/e2e/cuda_run.h"

namespace qtrain::e2e {
namespace {

TEST(CudaBench, RunsEveryOp) {
  const Outcome outcome = qtrain_ok({.words = {"bench", "--device", "cuda", "--small"}});
  for (const char* name : {"rms_norm_grad/", "cross_entropy/", "adamw/", "adamw_8bit/", "adafactor/", "attention_grad/",
                           "gemm/qwen3-0.6b/head/"})
    EXPECT_THAT(outcome.out, ::testing::HasSubstr(name));
}

/// The groups of kernels in a step of a config, from `qtrain bench step`.
class CudaBenchStep : public CudaRun {
 protected:
  Json measured(const Json& config, std::vector<std::string> more = {}) {
    write_file(folder_ / "step.json", dump_json(config));
    std::vector<std::string> words{"bench", "step", (folder_ / "step.json").string(), "--json",
                                   (folder_ / "result.json").string()};
    words.insert(words.end(), more.begin(), more.end());
    said_ = qtrain_ok({.words = words}).out;
    return read_json(folder_ / "result.json");
  }
  static std::map<std::string, std::int64_t> launches(const Json& result, const char* group) {
    std::map<std::string, std::int64_t> all;
    for (const Json& k : result.at("kernels"))
      if (k.at("group") == group) all[k.at("name")] += k.at("launches").get<std::int64_t>();
    return all;
  }

  std::string said_;
};

TEST_F(CudaBenchStep, AddsUpTheKernelsOfAllWeights) {
  const Json result = measured(config(Json::object()));
  // With two layers and two micro-batches, each stage of a layer is launched four times.
  EXPECT_EQ(launches(result, "attention forward"), (std::map<std::string, std::int64_t>{{"attention", 4}}));
  EXPECT_EQ(launches(result, "cross-entropy").at("cross_entropy"), 2);
  EXPECT_EQ(launches(result, "other element-wise").at("packed_glu"), 4);
  EXPECT_GE(launches(result, "update").at("adamw"), 1);
  EXPECT_THAT(launches(result, "adapter gemms"), ::testing::IsEmpty());
  double kernels = 0, groups = 0;
  for (const Json& k : result.at("kernels")) kernels += k.at("ms").get<double>();
  for (const Json& g : result.at("groups"))
    if (g.at("group") != "gaps") groups += g.at("ms").get<double>();
  EXPECT_NEAR(groups, kernels, 1e-6 * kernels);
  EXPECT_NEAR(result.at("attributed_ms").get<double>(), kernels, 1e-6 * kernels);
  EXPECT_EQ(result.at("planned_bytes"), result.at("allocated_bytes"));
  EXPECT_EQ(result.at("micro_batches"), 2);
  EXPECT_THAT(said_,
              ::testing::AllOf(::testing::HasSubstr("part of the step"), ::testing::HasSubstr("rms_norm_grad  ")));
  EXPECT_FALSE(fs::exists(folder_ / "out")) << "measuring writes no result";
}

TEST_F(CudaBenchStep, TellsTheGemmsOfAdapters) {
  const Json result = measured(lora(Json::object()));
  EXPECT_GT(launches(result, "adapter gemms").at("gemm"), 0);
  EXPECT_GT(launches(result, "gemm").at("gemm"), 0);
}

TEST_F(CudaBenchStep, TakesKeysOfTheConfig) {
  EXPECT_EQ(measured(config(Json::object()), {"gradient_accumulation_steps=1"}).at("micro_batches"), 1);
}

}  // namespace
}  // namespace qtrain::e2e
