// Losses that are not finite, of steps and of evaluations: what is told, saved and gone on from.
#include <limits>

#include "core/file.h"
#include "core/safetensors.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A golden model in which the embedding of token 63 is not a number.
void write_poisoned_model(const fs::path& folder) {
  fs::create_directories(folder);
  const fs::path source = kGoldens / "llama_mha_untied";
  fs::copy_file(source / "config.json", folder / "config.json");
  const SafetensorsReader reader(source);
  NamedTensors tensors(reader.tensors().begin(), reader.tensors().end());
  const ConstTensor embedding = reader.at("model.embed_tokens.weight");
  std::vector<float> values(embedding.as<float>(), embedding.as<float>() + embedding.numel());
  const auto hidden = static_cast<std::size_t>(embedding.shape[1]);
  std::fill_n(values.begin() + 63 * hidden, hidden, std::numeric_limits<float>::quiet_NaN());
  for (auto& [name, tensor] : tensors)
    if (name == "model.embed_tokens.weight") tensor = view_of(std::span<const float>(values), embedding.shape);
  write_safetensors(folder / "model.safetensors", tensors);
}

class NonFinite : public RunOver {
 protected:
  /// Steps of one row each of a model for which token 63 is poison, with a checkpoint after each.
  Json poisoned(int steps) {
    if (!fs::exists(folder_ / "model")) write_poisoned_model(folder_ / "model");
    return {{"model_name_or_path", (folder_ / "model").string()},
            {"per_device_train_batch_size", 1},
            {"gradient_accumulation_steps", 1},
            {"train_sampling_strategy", "sequential"},
            {"use_peft", true},
            {"warmup_steps", 0},
            {"save_strategy", "steps"},
            {"save_steps", 1},
            {"max_steps", steps}};
  }
};

const std::string kGood = "{\"input_ids\": [7, 8, 9]}\n", kBad = "{\"input_ids\": [63, 5, 6]}\n";

TEST_F(NonFinite, ALossThatStaysNonFiniteStopsTheRun) {
  const Outcome outcome =
      run_over("{\"input_ids\": [5, 6, 7]}\n{\"input_ids\": [8, 9, 7]}\n",
               {{"learning_rate", 1e30}, {"warmup_steps", 0}, {"save_strategy", "steps"}, {"save_steps", 1}});
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("not finite"));
  EXPECT_FALSE(fs::exists(folder_ / "out/model.safetensors"));
}

TEST_F(NonFinite, OneBadStepIsSkippedToldAndResumedOver) {
  const std::string rows = kGood + kBad + kGood + kGood;
  const Outcome outcome = run_over(rows, poisoned(3));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("step 2"), HasSubstr("skipped")));
  const auto log = history(folder_ / "out", "loss");
  ASSERT_EQ(log.size(), 3u);
  EXPECT_TRUE(log[1].at("loss").is_null());  // not 0 and not an average: there is none
  EXPECT_TRUE(log[1].at("grad_norm").is_null());
  EXPECT_TRUE(log[2].at("loss").is_number());
  EXPECT_EQ(bytes_of(folder_ / "out/checkpoint-1/adapter_model.safetensors"),
            bytes_of(folder_ / "out/checkpoint-2/adapter_model.safetensors"));
  // A history with such a row can be read again.
  EXPECT_EQ(run_over(rows, poisoned(4)).code, 0);
}

TEST_F(NonFinite, EvaluationsLeaveCheckpointsThatCanBeRead) {
  write_file(folder_ / "bad.jsonl", kBad);
  Json change = poisoned(2);
  change.update({{"eval_dataset_name", (folder_ / "bad.jsonl").string()},
                 {"eval_strategy", "steps"},
                 {"eval_steps", 1},
                 {"metric_for_best_model", "eval_loss"}});
  Outcome outcome = run_over(kGood + kGood + kGood, change);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("step 1: eval_loss not finite over 2 targets in"));
  change["max_steps"] = 3;
  outcome = run_over(kGood + kGood + kGood, change);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("at step 2 of 3"), Not(HasSubstr("damaged"))));
  const auto log = history(folder_ / "out", "eval_loss");
  ASSERT_EQ(log.size(), 3u);
  for (const Json& row : log) EXPECT_TRUE(row.at("eval_loss").is_null()) << row;
  std::size_t logged = 0;
  for (const Json& row : read_jsonl(folder_ / "out/metrics.jsonl")) logged += row.contains("eval_loss");
  EXPECT_EQ(logged, 3u) << "a resume keeps the rows";
  EXPECT_TRUE(read_json(folder_ / "out/trainer_state.json").at("best_metric").is_null());
}

TEST_F(NonFinite, EvaluationsAreNullInTheJsonOfEval) {
  write_file(folder_ / "bad.jsonl", kBad);
  write_file(folder_ / "run.json", dump_json(tiny_run(folder_ / "none")));
  write_poisoned_model(folder_ / "model");
  const std::vector<std::string> words{"eval", (folder_ / "run.json").string(), "--base",
                                       "eval_dataset_name=" + (folder_ / "bad.jsonl").string(),
                                       "model_name_or_path=" + (folder_ / "model").string()};
  const Outcome outcome = qtrain_ok({.words = words});
  EXPECT_THAT(outcome.out, HasSubstr("eval_loss not finite, perplexity not finite over 2 targets of 1 row\n"));
  std::vector<std::string> json = words;
  json.emplace_back("--json");
  const Json result = parse_json(qtrain_ok({.words = json}).out, "eval");
  EXPECT_TRUE(result.at("eval_loss").is_null()) << result;
  EXPECT_TRUE(result.at("perplexity").is_null()) << result;
}

TEST_F(NonFinite, LossesOfAllStepsAreNoNumber) {
  const Outcome outcome = run_over(kBad, poisoned(1));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("step 1/1 100%  epoch 1.00  loss not finite"));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("done: 1 step in"), HasSubstr("train_loss not finite")));
  EXPECT_TRUE(read_json(folder_ / "out/train_results.json").at("train_loss").is_null());
}

}  // namespace
}  // namespace qtrain::e2e
