// Whole runs on a CUDA device or under the harness: the curves of transformers, and settings that must not change a
// result.
#include "core/device.h"
#include "core/os/file.h"
#include "tests/e2e/cuda_run.h"

namespace qtrain::e2e {
namespace {

/// Runs the config of a golden curve on the device.
fs::path run_curve(const std::string& name, const TempFolder& folder, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"config.json", "device=cuda", "output_dir=" + (folder / "out").string(), "threads=1"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = qtrain_ok({.words = words, .folder = kGoldens / "curves" / name});
  EXPECT_THAT(outcome.err, ::testing::HasSubstr("compute capability"));
  return folder / "out";
}

double planned_bytes(const fs::path& output, const char* part) {
  return read_json(output / "train_results.json").at("memory").at("planned").at(part).get<double>();
}

class CudaCurve : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaCurve, IsThatOfTransformers) {
  const TempFolder folder;
  const fs::path golden = kGoldens / "curves" / GetParam(), output = run_curve(GetParam(), folder);
  const Json expected = read_json(golden / "expected.json");
  // As on the CPU: both are float32, with different summation orders.
  const auto tolerance = [&](const char* what) { return 4 * expected.at("spread").at(what).get<double>() + 1e-6; };
  const auto rows = history(output, "loss");
  const Json& steps = expected.at("steps");
  ASSERT_EQ(rows.size(), steps.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(rows[i].at("loss"), steps[i].at("loss"), tolerance("loss")) << "step " << i + 1;
    EXPECT_NEAR(rows[i].at("grad_norm"), steps[i].at("grad_norm"), tolerance("grad_norm")) << "step " << i + 1;
    if (steps[i].contains("aux_loss")) {
      EXPECT_NEAR(rows[i].at("aux_loss"), steps[i].at("aux_loss"), tolerance("loss")) << "step " << i + 1;
    }
  }
  if (!fs::exists(golden / "expected_final.safetensors")) return;
  EXPECT_LT(largest_difference_of_sums(golden / "expected_final.safetensors", output), 2 * tolerance("final"));
}

INSTANTIATE_TEST_SUITE_P(All, CudaCurve,
                         ::testing::Values("llama_full", "llama_bias_full", "llama_lora_all", "qwen3_full",
                                           "qwen3_lora_rs", "label_free_window", "qwen3_moe_balanced", "qlora_nf4",
                                           "qlora_dora_nf4", "qwen3_pissa", "llama_loftq", "smollm3_lora", "olmo2_full",
                                           "granite_full", "gemma3_full", "mixtral_lora", "phi3_full", "phi3_lora",
                                           "gpt_oss_full", "gpt_oss_lora", "qwen2_moe_full", "qwen2_moe_lora",
                                           "olmo3_full", "exaone4_full", "ministral3_full", "hunyuan_full"),
                         [](const auto& info) { return std::string(info.param); });

// A GPU keeps dense copies if they fit.
TEST(CudaQlora, GivesTheSameBitsWithDenseCopiesAndWithout) {
  const TempFolder kept, without;
  const char* name = "qlora_fp4_serialized";
  const fs::path copies = run_curve(name, kept, {"max_steps=3"}),
                 scratch = run_curve(name, without, {"max_steps=3", "dequantized_copy=false"});
  EXPECT_EQ(history_without_times(copies), history_without_times(scratch));
  const auto dense = [](const fs::path& output) { return planned_bytes(output, "dequantized_weights"); };
  EXPECT_GT(dense(copies), 4 * dense(scratch));
}

struct NarrowCurve {
  const char *name, *precision;
};
class CudaNarrowCurve : public ::testing::TestWithParam<NarrowCurve> {};

// llama_bias_full: its biases are float32, its GEMMs 16-bit.
TEST_P(CudaNarrowCurve, IsAsNearAsThatOfTransformers) {
  const auto& [name, precision] = GetParam();
  const bool bf16 = precision == std::string("bf16");
  const TempFolder folder;
  const auto rows = history(run_curve(name, folder, {std::string(precision) + "=true"}), "loss");
  const fs::path golden = kGoldens / "curves" / name;
  const Json steps = read_json(golden / "expected.json").at("steps");
  // The distance of transformers with 16-bit weights and activations from float64; ours may be equally far off in the
  // other direction.
  const Json spread = read_json(golden / "spread_16bit.json").at("spread").at(bf16 ? "bf16" : "f16");
  ASSERT_EQ(rows.size(), steps.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const char* what : {"loss", "grad_norm"})
      EXPECT_NEAR(rows[i].at(what), steps[i].at(what), 2 * spread.at(what).get<double>()) << what << ", step " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(All, CudaNarrowCurve,
                         ::testing::Values(NarrowCurve{"llama_bias_full", "bf16"},
                                           NarrowCurve{"llama_bias_full", "fp16"},
                                           NarrowCurve{"qwen3_lora_rs", "bf16"}),
                         [](const auto& info) { return std::string(info.param.name) + "_" + info.param.precision; });

TEST_F(CudaRun, RecomputationGivesTheSameBits) {
  for (const bool adapter : {false, true}) {
    const auto base = [&](const Json& changes) { return adapter ? lora(changes) : config(changes); };
    const std::string kept = trained(base({{"gradient_checkpointing", false}}));
    EXPECT_TRUE(kept == trained(base({{"gradient_checkpointing", "selective"}}))) << "selective, adapter " << adapter;
    EXPECT_TRUE(kept == trained(base({{"gradient_checkpointing", true}}))) << "block, adapter " << adapter;
  }
}

TEST_F(CudaRun, FollowsTheProcessor) {
  for (const bool adapter : {false, true}) {
    const auto base = [&](const Json& changes) { return adapter ? lora(changes) : config(changes); };
    trained(base(Json::object()));
    const std::vector<double> there = losses();
    trained(base({{"device", "cpu"}}));
    const std::vector<double> here = losses();
    ASSERT_EQ(there.size(), 2u);
    // float32 sums in a different order, with the same dropout masks.
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(there[i], here[i], 1e-5) << "step " << i + 1;
  }
}

TEST_F(CudaRun, InBfloat16GivesTheSameBitsTwice) {
  trained(config(Json::object()));
  const std::vector<double> wide = losses();
  const std::string once = trained(config({{"bf16", true}}));
  EXPECT_NE(losses(), wide) << "bf16 has no effect";
  EXPECT_TRUE(once == trained(config({{"bf16", true}})));
}

// Under the harness GEMMs run on the CPU, which does not round float32 operands everywhere. If copies were not updated,
// the loss would not change.
TEST_F(CudaRun, LearnsTheSameWithOperandCopiesAndWithout) {
  Json changes{{"bf16", true}, {"learning_rate", 0.02}, {"gradient_accumulation_steps", 1}, {"operand_copies", false}};
  const std::string without = trained(config(changes));
  const std::vector<double> expected = losses();
  changes["operand_copies"] = true;
  const std::string with = trained(config(changes));
  if (!cuda_info().emulated) {
    EXPECT_TRUE(with == without);
  }
  ASSERT_EQ(expected.size(), 2u);
  EXPECT_GT(expected[0] - expected[1], 0.1);
  EXPECT_NEAR(losses().at(1), expected[1], 0.02);
  EXPECT_GT(planned_bytes(folder_ / "out", "operand_copies"), 0);
}

TEST_F(CudaRun, GoesOnBitForBit) {
  const Json all = config({{"save_strategy", "steps"}, {"save_steps", 1}, {"bf16", true}, {"operand_copies", true}});
  const std::string whole = trained(all);
  fs::remove_all(folder_ / "out/checkpoint-2");
  fs::remove(folder_ / "out/model.safetensors");
  train_ok(folder_.path(), all);
  EXPECT_TRUE(whole == bytes_of(folder_ / "out/model.safetensors"));
}

TEST_F(CudaRun, AnswersAsTheProcessorDoes) {
  trained(config({{"max_steps", 3}, {"learning_rate", 0.02}}));
  const auto answer = [&](const char* device) {
    return qtrain_ok({.words = {"generate", "--model", (folder_ / "out").string(), "--prompt", "the ways", "--raw",
                                "--dtype", "float32", "--greedy", "--max_new_tokens", "5", "--device", device}})
        .out;
  };
  const std::string there = answer("cuda");
  EXPECT_GT(there.size(), 2u);
  EXPECT_EQ(there, answer("cpu"));
}

TEST_F(CudaRun, EvaluatesAsTheProcessorDoes) {
  Json c = config({{"eval_dataset_name", (folder_ / "data.jsonl").string()}});
  const auto loss = [&](const char* device) {
    c["device"] = device;
    write_file(folder_ / "run.json", dump_json(c));
    return parse_json(qtrain_ok({.words = {"eval", (folder_ / "run.json").string(), "--json"}}).out, "eval")
        .at("eval_loss")
        .get<double>();
  };
  EXPECT_NEAR(loss("cuda"), loss("cpu"), 1e-5);
}

TEST_F(CudaRun, SaysBeforeTheFirstStepWhatDoesNotFit) {
  if (!cuda_info().emulated) GTEST_SKIP() << "needs a device of few bytes";
  ASSERT_EQ(setenv("QTRAIN_EMULATION", "memory=119537664", 1), 0);  // 114 MiB, of which ops take 112
  write_file(folder_ / "run.json", dump_json(config({{"per_device_train_batch_size", 32}, {"bf16", true}})));
  const Outcome outcome = qtrain({.words = {(folder_ / "run.json").string()}});
  unsetenv("QTRAIN_EMULATION");
  EXPECT_EQ(outcome.code, 4);
  for (const char* text : {"activations", "optimizer", "MiB are available", "per_device_train_batch_size=", "saves"})
    EXPECT_THAT(outcome.err, ::testing::HasSubstr(text));
}

TEST_F(CudaRun, DoctorNamesTheDevice) {
  const Json report = parse_json(qtrain_ok({.words = {"doctor", "--json"}}).out, "doctor");
  EXPECT_THAT(report.at("CUDA").at("value").get<std::string>(), ::testing::HasSubstr("compute capability"));
}

}  // namespace
}  // namespace qtrain::e2e
