// Results must not depend on threads, recomputation or repetition, to the bit; nor on how a step is split into
// micro-batches, up to the order of sums.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

/// A model that is large enough for several tasks per op, on packed text; the weights start at random.
class Invariance : public ::testing::Test {
 protected:
  void SetUp() override {
    write_untrained_model(folder_ / "model");
    give_random_weights(folder_ / "model");
    std::vector<Json> rows;
    for (int i = 0; i < 24; ++i) {
      std::string text;
      for (int k = 0; k <= i % 7 * 6; ++k)
        text += "the " + std::to_string((i * 37 + k * k) % 101) + " ways of " + "abcdefgh"[k % 8];
      rows.push_back({{"text", text}});
    }
    write_file(folder_ / "data.jsonl", jsonl(rows));
  }

  Json config(const std::string& output) const {
    return {{"model_name_or_path", (folder_ / "model").string()},
            {"dataset_name", (folder_ / "data.jsonl").string()},
            {"output_dir", (folder_ / output).string()},
            {"random_init", true},
            {"bf16", false},
            {"threads", 1},
            {"max_steps", 4},
            {"max_length", 96},
            {"packing", true},
            {"per_device_train_batch_size", 2},
            {"gradient_accumulation_steps", 2},
            {"gradient_checkpointing", false},
            {"learning_rate", 0.002},
            {"logging_steps", 1},
            {"save_strategy", "no"}};
  }
  Json lora(const std::string& output) const {
    Json c = config(output);
    c.update(
        {{"random_init", false}, {"use_peft", true}, {"lora_dropout", 0.1}, {"lora_target_modules", "all-linear"}});
    return c;
  }
  /// The final weights of a run, as bytes.
  std::string trained(Json c, const Json& changes = Json::object()) const {
    c.update(changes);
    fs::remove_all(c["output_dir"].get<std::string>());
    train_ok(folder_.path(), c);
    const fs::path output = c["output_dir"].get<std::string>();
    return bytes_of(output / (c.contains("use_peft") ? "adapter_model.safetensors" : "model.safetensors"));
  }

  TempFolder folder_;
};

TEST_F(Invariance, ThreadsAndRepetitionGiveTheSameBits) {
  for (const Json& base : {config("full"), lora("lora")}) {
    const std::string once = trained(base);
    EXPECT_TRUE(once == trained(base)) << "a second run differs";
    EXPECT_TRUE(once == trained(base, {{"threads", 2}})) << "2 threads differ";
    EXPECT_TRUE(once == trained(base, {{"threads", 3}})) << "3 threads differ";
    EXPECT_FALSE(once == trained(base, {{"seed", 43}})) << "the seed has no effect";
  }
}

TEST_F(Invariance, RecomputationGivesTheSameBits) {
  for (const Json& base : {config("full"), lora("lora")}) {
    const std::string kept = trained(base);
    EXPECT_TRUE(kept == trained(base, {{"gradient_checkpointing", "selective"}}));
    EXPECT_TRUE(kept == trained(base, {{"gradient_checkpointing", true}}));
  }
}

TEST_F(Invariance, ComputeInBfloat16IsTheSameForAnyNumberOfThreads) {
  ASSERT_EQ(setenv("QTRAIN_CPU_ISA", "avx512_bf16", 1), 0);  // even if it is not the fastest
  const Json base = config("bf16");
  Json asked = base;
  asked["compute_dtype"] = "bfloat16";
  const Outcome outcome = train_ok(folder_.path(), asked);
  if (outcome.err.find("no faster than float32; using float32") != std::string::npos)
    GTEST_SKIP() << "this processor has no bfloat16 dot products";
  const std::string once = trained(base, {{"compute_dtype", "bfloat16"}});
  EXPECT_TRUE(once == trained(base, {{"compute_dtype", "bfloat16"}, {"threads", 3}}));
  EXPECT_FALSE(once == trained(base)) << "compute_dtype has no effect";
}

struct Split {
  int batch, accumulation;
};

TEST(Accumulation, OfUnequalRowsIsOneLargeBatch) {
  std::vector<std::vector<double>> losses, norms;
  const TempFolder folder;
  for (const Split split : {Split{8, 1}, Split{4, 2}, Split{2, 4}, Split{1, 8}}) {
    Json config = tiny_run(folder / std::to_string(split.batch));
    config.update({{"per_device_train_batch_size", split.batch},
                   {"gradient_accumulation_steps", split.accumulation},
                   {"dataset_name", (kGoldens / "curves/llama_full/data.jsonl").string()},
                   {"max_steps", 6}});
    train_ok(folder.path(), config);
    const auto rows = history(folder / std::to_string(split.batch), "loss");
    losses.push_back(column(rows, "loss"));
    norms.push_back(column(rows, "grad_norm"));
    ASSERT_EQ(rows.size(), 6u);
  }
  // float32 sums in a different order, amplified by AdamW over six updates; a mean of means would be off by 1e-2.
  for (std::size_t i = 1; i < losses.size(); ++i)
    for (std::size_t step = 0; step < 6; ++step) {
      EXPECT_NEAR(losses[i][step], losses[0][step], 5e-6) << "split " << i << " step " << step + 1;
      EXPECT_NEAR(norms[i][step], norms[0][step], 2e-5) << "split " << i << " step " << step + 1;
    }
}

}  // namespace
}  // namespace qtrain::e2e
