// Which checkpoint is the best, and what happens to it.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::ElementsAre;

/// A run that gets worse after its third step.
Json worsening(const fs::path& output) {
  Json config = tiny_run(output);
  config.update({{"eval_dataset_name", (kGoldens / "curves/cosine/data.jsonl").string()},
                 {"eval_strategy", "steps"},
                 {"eval_steps", 1},
                 {"save_strategy", "steps"},
                 {"save_steps", 1},
                 {"load_best_model_at_end", true},
                 {"learning_rate", 0.3},
                 {"warmup_steps", 6},
                 {"max_grad_norm", 0}});
  return config;
}

int best_step(const fs::path& output) {
  const auto losses = column(history(output, "eval_loss"), "eval_loss");
  return static_cast<int>(std::min_element(losses.begin(), losses.end()) - losses.begin()) + 1;
}

TEST(Best, StaysAmongTheCheckpointsAndBecomesTheFinalModel) {
  const TempFolder folder;
  Json config = worsening(folder / "out");
  config["save_total_limit"] = 1;
  train_ok(folder.path(), config);
  const int best = best_step(folder / "out");
  ASSERT_LT(best, 7) << "the run was meant to get worse";
  ASSERT_EQ(history(folder / "out", "eval_loss").size(), 8u);
  const std::string name = "checkpoint-" + std::to_string(best);
  EXPECT_THAT(checkpoint_names(folder / "out"), ElementsAre(name, "checkpoint-8"));
  EXPECT_EQ(bytes_of(folder / "out" / name / "model.safetensors"), bytes_of(folder / "out/model.safetensors"));
  const Json state = read_json(folder / "out/trainer_state.json");
  EXPECT_EQ(state.at("best_global_step"), best);
  EXPECT_EQ(fs::path(state.at("best_model_checkpoint").get<std::string>()).filename(), name);
  EXPECT_EQ(state.at("best_metric"), history(folder / "out", "eval_loss")[best - 1].at("eval_loss"));
}

TEST(Best, StaysAlsoWhereItDoesNotBecomeTheFinalModel) {
  const TempFolder folder;
  Json config = worsening(folder / "out");
  config.update({{"save_total_limit", 1}, {"load_best_model_at_end", false}, {"metric_for_best_model", "eval_loss"}});
  train_ok(folder.path(), config);
  const std::string name = "checkpoint-" + std::to_string(best_step(folder / "out"));
  EXPECT_THAT(checkpoint_names(folder / "out"), ElementsAre(name, "checkpoint-8"));
}

TEST(Best, IsNotChosenWhereNoMetricIsAskedFor) {
  const TempFolder folder;
  Json config = worsening(folder / "out");
  config.update({{"save_total_limit", 1}, {"load_best_model_at_end", false}});
  train_ok(folder.path(), config);
  EXPECT_THAT(checkpoint_names(folder / "out"), ElementsAre("checkpoint-8"));
  const Json state = read_json(folder / "out/trainer_state.json");
  for (const char* key : {"best_metric", "best_global_step", "best_model_checkpoint"})
    EXPECT_TRUE(state.at(key).is_null()) << key;
}

TEST(Best, AdapterBecomesTheFinalAdapter) {
  const TempFolder folder;
  Json config = worsening(folder / "out");
  config.update({{"use_peft", true}, {"lora_target_modules", "all-linear"}, {"save_total_limit", 2}});
  train_ok(folder.path(), config);
  const int best = best_step(folder / "out");
  ASSERT_LT(best, 7) << "the run was meant to get worse";
  const fs::path kept = folder / "out" / ("checkpoint-" + std::to_string(best));
  EXPECT_EQ(checkpoint_names(folder / "out").size(), 2u);
  EXPECT_EQ(bytes_of(kept / "adapter_model.safetensors"), bytes_of(folder / "out/adapter_model.safetensors"));
}

TEST(Best, SaveStrategyBestSavesOnlyImprovements) {
  const TempFolder folder;
  Json config = worsening(folder / "out");
  config["save_strategy"] = "best";
  train_ok(folder.path(), config);
  std::vector<std::string> expected;
  double best = 1e9;
  const auto losses = column(history(folder / "out", "eval_loss"), "eval_loss");
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (losses[i] < best) {
      best = losses[i];
      expected.push_back("checkpoint-" + std::to_string(i + 1));
    }
  EXPECT_EQ(checkpoint_names(folder / "out"), expected);
  EXPECT_LT(expected.size(), 8u);
}

}  // namespace
}  // namespace qtrain::e2e
