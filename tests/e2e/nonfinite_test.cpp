// Losses of steps and evaluations that are not finite: what is reported and saved, and how runs continue.
#include <limits>

#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const fs::path kUntiedModel = kGoldens / "llama_mha_untied";

/// A golden model in which one value of this tensor is NaN.
void write_damaged_model(const fs::path& folder, const std::string& damaged) {
  fs::create_directories(folder);
  fs::copy_file(kUntiedModel / "config.json", folder / "config.json");
  const SafetensorsReader reader(kUntiedModel);
  NamedTensors tensors(reader.tensors().begin(), reader.tensors().end());
  const ConstTensor whole = reader.at(damaged);
  std::vector<float> values(whole.as<float>(), whole.as<float>() + whole.numel());
  values[5] = std::numeric_limits<float>::quiet_NaN();
  for (auto& [name, tensor] : tensors)
    if (name == damaged) tensor = view_of(std::span<const float>(values), whole.shape);
  write_safetensors(folder / "model.safetensors", tensors);
}

/// An adapter that is finite, but whose factors yield infinity for token 63.
void write_poisonous_adapter(const fs::path& folder) {
  constexpr std::int64_t kRows = 67, kWidth = 16;
  fs::create_directories(folder);
  const Json config{{"peft_type", "LORA"},
                    {"base_model_name_or_path", kUntiedModel.string()},
                    {"r", 1},
                    {"lora_alpha", 1},
                    {"lora_dropout", 0.0},
                    {"target_modules", {"embed_tokens"}}};
  write_file(folder / "adapter_config.json", dump_json(config));
  std::vector<float> a(kRows, 0.0F), b(kWidth, 10.0F);
  a[63] = 3e38F;
  const std::string name = "base_model.model.model.embed_tokens.lora_embedding_";
  write_safetensors(folder / "adapter_model.safetensors",
                    NamedTensors{{name + "A", view_of(std::span<const float>(a), {1, kRows})},
                                 {name + "B", view_of(std::span<const float>(b), {kWidth, 1})}});
}

class NonFinite : public RunOver {
 protected:
  /// Steps with one row each, for an adapter that token 63 breaks, with a checkpoint after each step.
  Json poisoned(int steps) {
    if (!fs::exists(folder_ / "adapter")) write_poisonous_adapter(folder_ / "adapter");
    return {{"model_name_or_path", kUntiedModel.string()},
            {"adapter_name_or_path", (folder_ / "adapter").string()},
            {"per_device_train_batch_size", 1},
            {"gradient_accumulation_steps", 1},
            {"train_sampling_strategy", "sequential"},
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
  EXPECT_TRUE(log[1].at("loss").is_null());  // neither 0 nor an average, because there is none
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
  write_poisonous_adapter(folder_ / "adapter");
  const std::vector<std::string> words{"eval",
                                       (folder_ / "run.json").string(),
                                       "--base",
                                       "eval_dataset_name=" + (folder_ / "bad.jsonl").string(),
                                       "model_name_or_path=" + kUntiedModel.string(),
                                       "adapter_name_or_path=" + (folder_ / "adapter").string()};
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

/// No loss follows the last update, so the weights are checked as they are written.
TEST_F(NonFinite, WeightsThatTheLastUpdateDestroyedAreNotSaved) {
  const Json sure{{"learning_rate", 1e39}, {"warmup_steps", 0}, {"max_steps", 1}, {"weight_decay", 0.0}};
  struct Case {
    const char* name;
    Json change;
    std::string tensor;
  };
  const std::vector<Case> cases{
      {"all weights", {{"save_strategy", "no"}}, "model."},
      {"all weights with a checkpoint", {{"save_strategy", "steps"}, {"save_steps", 1}}, "model."},
      {"bfloat16", {{"dtype", "bfloat16"}, {"save_strategy", "no"}}, "model."},
      {"too large for float16", {{"dtype", "float16"}, {"learning_rate", 1e6}}, "in float16"},
      {"an adapter", {{"use_peft", true}, {"save_strategy", "steps"}, {"save_steps", 1}}, "lora_"},
      {"two ranks that divide", {{"nproc", 2}, {"device", "cpu"}, {"zero_stage", 3}, {"max_steps", 1}}, "model."}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    fs::remove_all(folder_ / "out");
    Json change = sure;
    change.update(c.change);
    const Outcome o = run_over(kGood + kGood + kGood + kGood, change);
    EXPECT_EQ(o.code, 5) << o.err;
    EXPECT_THAT(o.err, AllOf(HasSubstr("not finite"), HasSubstr(c.tensor)));
    EXPECT_FALSE(fs::exists(folder_ / "out/model.safetensors"));
    EXPECT_FALSE(fs::exists(folder_ / "out/adapter_model.safetensors"));
    EXPECT_FALSE(fs::exists(folder_ / "out/checkpoint-1"));
    EXPECT_FALSE(fs::exists(folder_ / "out/manifest.json"));
  }
}

TEST_F(NonFinite, DamagedWeightsAreNamed) {
  const std::string damaged = "model.layers.1.mlp.up_proj.weight";
  write_damaged_model(folder_ / "model", damaged);
  const Json model{{"model_name_or_path", (folder_ / "model").string()}};
  for (const Json& kind :
       {Json{{"use_peft", false}}, Json{{"use_peft", true}}, Json{{"use_peft", true}, {"load_in_4bit", true}}}) {
    SCOPED_TRACE(kind.dump());
    Json change = model;
    change.update(kind);
    const Outcome o = run_over(kGood + kGood, change);
    EXPECT_EQ(o.code, 3) << o.err;
    EXPECT_THAT(o.err, AllOf(HasSubstr(damaged), HasSubstr("element 5 is nan")));
  }
}

TEST_F(NonFinite, DamagedAdaptersAreNamed) {
  write_poisonous_adapter(folder_ / "adapter");
  const std::string name = "base_model.model.model.embed_tokens.lora_embedding_";
  const std::vector<float> a(67, 0.0F), b(16, std::numeric_limits<float>::infinity());
  write_safetensors(folder_ / "adapter/adapter_model.safetensors",
                    NamedTensors{{name + "A", view_of(std::span<const float>(a), {1, 67})},
                                 {name + "B", view_of(std::span<const float>(b), {16, 1})}});
  const Outcome o = run_over(kGood + kGood, poisoned(1));
  EXPECT_EQ(o.code, 3) << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr(name + "B"), HasSubstr("element 0 is inf")));
}

TEST_F(NonFinite, WhatCameToNothingIsAWarning) {
  struct Case {
    const char* name;
    Json change;
    std::string says;
  };
  const std::string rows = kGood + "{\"input_ids\": [3, 9, 4, 5]}\n" + kGood + "{\"input_ids\": [8, 2, 4, 1]}\n";
  const std::vector<Case> cases{
      {"a rate of 1",
       {{"learning_rate", 1},
        {"max_steps", 39},
        {"weight_decay", 0.0},
        {"model_name_or_path", kUntiedModel.string()},
        {"dataset_name", (kGoldens / "curves/cosine/data.jsonl").string()}},
       "training destroyed the model"},
      {"an adapter that stays as it was", {{"use_peft", true}, {"learning_rate", 0}}, "the adapter has no effect"},
      {"a run that learns", {{"max_steps", 12}}, ""},
      {"an adapter that learns", {{"use_peft", true}, {"max_steps", 12}}, ""}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    fs::remove_all(folder_ / "out");
    Json change{{"max_steps", 4}, {"warmup_steps", 0}, {"lr_scheduler_type", "constant"}, {"bf16", false}};
    change.update(c.change);
    const Outcome o = run_over(rows, change);
    EXPECT_EQ(o.code, 0) << o.err;
    for (const std::string warning : {"training destroyed the model", "the adapter has no effect"}) {
      const std::size_t at = o.err.find(warning);
      EXPECT_EQ(at != std::string::npos, warning == c.says) << o.err;
      if (at != std::string::npos) EXPECT_EQ(o.err.find(warning, at + 1), std::string::npos) << "once";
    }
  }
}

}  // namespace
}  // namespace qtrain::e2e
