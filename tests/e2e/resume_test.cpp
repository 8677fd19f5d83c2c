// A run that was stopped and resumed must end like an uninterrupted one: with the same bits in weights and optimizer
// state, the same history, and each step logged once.
#include <signal.h>

#include <thread>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Scenario {
  std::string name;
  bool lora = false;
  Json changes = Json::object();  ///< changes to the tiny run
  friend std::ostream& operator<<(std::ostream& out, const Scenario& s) { return out << s.name; }
};

constexpr int kSteps = 6;

Json config_of(const Scenario& s, const fs::path& output) {
  Json config = s.lora ? tiny_lora_run(output) : tiny_run(output);
  config.update({{"max_steps", kSteps}, {"save_strategy", "steps"}, {"save_steps", 1}});
  config.update(s.changes);
  return config;
}

Json with_evaluation() {
  return {{"eval_dataset_name", (kGoldens / "curves/llama_full/data.jsonl").string()},
          {"eval_strategy", "steps"},
          {"eval_steps", 2},
          {"logging_steps", 4}};
}

std::vector<Scenario> scenarios() {
  return {{.name = "full"},
          {.name = "lora_dropout", .lora = true},
          {"dora_dropout", true, {{"use_dora", true}}},
          {"pissa_dropout", true, {{"init_lora_weights", "pissa_niter_2"}}},
          {"olora_dora_4bit", true, {{"init_lora_weights", "olora"}, {"use_dora", true}, {"load_in_4bit", true}}},
          {"loftq", true, {{"init_lora_weights", "loftq"}}},
          {"bf16_weights", false, {{"dtype", "bfloat16"}}},
          {"stochastic_rounding", false, {{"optim_args", "stochastic_rounding=true"}, {"dtype", "bfloat16"}}},
          {"sgd_dampened", false, {{"optim", "sgd"}, {"optim_args", "momentum=0.9,dampening=0.5"}}},
          {"adafactor", true, {{"optim", "adafactor"}}},
          {"muon", false, {{"optim", "muon"}}},
          {"experts", false, {{"model_name_or_path", (kGoldens / "qwen3_moe").string()}, {"optim", "muon"}}},
          {"packing", false, {{"packing", true}, {"max_length", 24}, {"per_device_train_batch_size", 1}}},
          {"packing_lora_grouped", true, {{"packing", "bfd_split"}, {"max_length", 24}}},
          {"by_length", false, {{"train_sampling_strategy", "group_by_length"}}},
          {"whole_modules",
           true,
           {{"lora_target_modules", {"q_proj", "embed_tokens"}}, {"lora_modules_to_save", {"lm_head", "norm"}}}},
          {"rows_of_several_steps", true, with_evaluation()}};
}

std::string weights_file(const Scenario& s) {
  return s.lora ? "adapter_model.safetensors" : "model.safetensors";
}

std::string checkpoint(int step) {
  return "checkpoint-" + std::to_string(step);
}

/// Checks that every row occurs once, in order of steps.
void expect_each_step_once(const fs::path& metrics, int logging_steps, int steps = kSteps) {
  std::vector<int> seen, expected;
  for (const Json& row : read_jsonl(metrics))
    if (row.contains("loss")) seen.push_back(row.at("step"));
  for (int step = logging_steps; step <= steps; step += logging_steps) expected.push_back(step);
  EXPECT_EQ(seen, expected);
}

void expect_same_end(const fs::path& a, const fs::path& b, const Scenario& s) {
  EXPECT_EQ(bytes_of(a / weights_file(s)), bytes_of(b / weights_file(s)));
  EXPECT_EQ(history_without_times(a), history_without_times(b));
}

class Resume : public ::testing::TestWithParam<Scenario> {};

TEST_P(Resume, FromAnyStepEndsInTheSameBits) {
  const Scenario& s = GetParam();
  const TempFolder folder;
  const fs::path whole = folder / "whole";
  const Json config = config_of(s, whole);
  train_ok(folder.path(), config);
  const std::string rows = bytes_of(whole / "metrics.jsonl");
  for (int k = 1; k < kSteps; ++k) {
    const fs::path part = folder / ("part" + std::to_string(k));
    fs::create_directories(part);
    fs::copy(whole / checkpoint(k), part / checkpoint(k));
    // A killed run may have logged more than it saved, and its last line may be incomplete.
    write_file(part / "metrics.jsonl", rows.substr(0, rows.size() - 3));
    Json again = config;
    again["output_dir"] = part.string();
    const Outcome outcome = train_ok(folder.path(), again);
    EXPECT_THAT(outcome.err, HasSubstr("at step " + std::to_string(k) + " of"));
    EXPECT_FALSE(fs::exists(part / checkpoint(k - 1)));
    expect_same_end(part, whole, s);
    const fs::path state = fs::path(checkpoint(kSteps)) / "optimizer.safetensors";
    EXPECT_EQ(bytes_of(part / state), bytes_of(whole / state));
    expect_each_step_once(part / "metrics.jsonl", config["logging_steps"]);
    if (::testing::Test::HasFailure()) FAIL() << "from step " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Resume, ::testing::ValuesIn(scenarios()),
                         [](const auto& info) { return info.param.name; });

// The matrices of this model are large enough for 8-bit state.
TEST(Resume8bit, EndsInTheSameBits) {
  const TempFolder folder;
  write_untrained_model(folder / "model");
  write_file(folder / "data.jsonl", jsonl({{{"text", "a row"}}, {{"text", "another row"}}, {{"text", "a third one"}}}));
  const auto run = [&](const char* output, const char* optim, int steps) {
    Json config = tiny_run(folder / output);
    config.update({{"model_name_or_path", (folder / "model").string()},
                   {"dataset_name", (folder / "data.jsonl").string()},
                   {"optim", optim},
                   {"max_steps", steps},
                   {"lr_scheduler_type", "constant"},
                   {"save_strategy", "steps"},
                   {"save_steps", 2}});
    return config;
  };
  train_ok(folder.path(), run("whole", "adamw_8bit", 4));
  train_ok(folder.path(), run("part", "adamw_8bit", 2));
  train_ok(folder.path(), run("part", "paged_adamw_8bit", 4));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(bytes_of(folder / "whole/checkpoint-4" / file) == bytes_of(folder / "part/checkpoint-4" / file))
        << file;
  EXPECT_FALSE(bytes_of(folder / "whole/model.safetensors") ==
               bytes_of(folder / "whole/checkpoint-2/model.safetensors"));

  write_file(folder / "other.json", dump_json(run("whole", "adamw_torch", 6)));
  const Outcome other = qtrain({.words = {(folder / "other.json").string()}});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("optim = \"adamw_8bit\", the config says \"adamw\""));
}

// Starts a run, sends `signals` once it has logged a row, and returns how it ended.
Outcome interrupted(const fs::path& folder, const fs::path& output, const std::vector<int>& signals) {
  Process process(launch_of({.words = {(folder / "config.json").string()}}));
  std::error_code missing;
  const auto logged = [&] {
    const auto size = fs::file_size(output / "metrics.jsonl", missing);
    return !missing && size > 0;
  };
  while (process.running() && !logged()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const int signal : signals) process.signal(signal);
  return process.wait();
}

struct Stop {
  std::string name;
  int signal;
  Json changes = Json::object();
  friend std::ostream& operator<<(std::ostream& out, const Stop& s) { return out << s.name; }
};

class StoppedBySignal : public ::testing::TestWithParam<Stop> {};

TEST_P(StoppedBySignal, TheSameCommandGoesOn) {
  const TempFolder folder;
  const Scenario s{.name = "", .lora = true};
  Json config = config_of(s, folder / "whole");
  config.update({{"max_steps", 150}, {"save_strategy", "no"}});
  config.update(GetParam().changes);
  train_ok(folder.path(), config);

  const fs::path output = folder / "output";
  config["output_dir"] = output.string();
  write_file(folder / "config.json", dump_json(config));
  Outcome outcome = interrupted(folder.path(), output, {GetParam().signal});
  ASSERT_EQ(outcome.code, 75) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("run the same command"));
  EXPECT_FALSE(fs::exists(output / "adapter_model.safetensors"));
  outcome = train_ok(folder.path(), config);
  EXPECT_THAT(outcome.err, HasSubstr("resumed from"));
  expect_same_end(output, folder / "whole", s);
  expect_each_step_once(output / "metrics.jsonl", 1, config.at("max_steps"));
}

Json mostly_evaluating() {
  return {{"max_steps", 40},
          {"eval_dataset_name", (kGoldens / "curves/llama_full/data.jsonl").string()},
          {"eval_strategy", "steps"},
          {"eval_steps", 1},
          {"per_device_eval_batch_size", 1},
          {"per_device_train_batch_size", 1},
          {"gradient_accumulation_steps", 1}};
}

INSTANTIATE_TEST_SUITE_P(All, StoppedBySignal,
                         ::testing::Values(Stop{"term", SIGTERM}, Stop{"interrupt", SIGINT}, Stop{"user", SIGUSR1},
                                           Stop{"while_evaluating", SIGTERM, mostly_evaluating()}),
                         [](const auto& info) { return info.param.name; });

TEST(Killed, ARunGoesOnFromItsLastCheckpointToTheSameBits) {
  const TempFolder folder;
  constexpr int kLong = 150;
  const Scenario s{.name = "", .lora = true};
  Json config = config_of(s, folder / "whole");
  config.update({{"max_steps", kLong}, {"save_steps", 10}, {"save_total_limit", 2}});
  train_ok(folder.path(), config);
  const fs::path output = folder / "output";
  config["output_dir"] = output.string();
  write_file(folder / "config.json", dump_json(config));
  Process process(launch_of({.words = {(folder / "config.json").string()}}));
  while (process.running() && !fs::exists(output / checkpoint(20)))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  process.signal(SIGKILL);
  EXPECT_EQ(process.wait().code, 128 + SIGKILL);
  EXPECT_THAT(train_ok(folder.path(), config).err, HasSubstr("resumed from"));
  expect_same_end(output, folder / "whole", s);
  expect_each_step_once(output / "metrics.jsonl", 1, kLong);
}

TEST(Stopped, ASecondSignalLeavesAtOnce) {
  const TempFolder folder;
  constexpr int kRows = 100'000;  // in one step, which takes many seconds
  std::string rows;
  for (int i = 0; i < kRows; ++i) rows += "{\"input_ids\": [1, 2, 3]}\n";
  write_file(folder / "rows.jsonl", rows);
  Json config = config_of({.name = "", .lora = true}, folder / "output");
  config.update({{"dataset_name", (folder / "rows.jsonl").string()},
                 {"per_device_train_batch_size", 1},
                 {"gradient_accumulation_steps", kRows}});
  write_file(folder / "config.json", dump_json(config));
  Process process(launch_of({.words = {(folder / "config.json").string()}}));
  ASSERT_TRUE(process.waits_for("training: ")) << process.said();
  process.signal(SIGTERM);
  ASSERT_TRUE(process.waits_for("Stopping after this step")) << process.said();
  process.signal(SIGINT);
  EXPECT_EQ(process.wait().code, 130);
}

TEST(Resume, AMovedOutputFolderKeepsItsBestCheckpoint) {
  const TempFolder folder;
  Json config = config_of({.name = "", .lora = false, .changes = with_evaluation()}, folder / "first");
  config.update({{"eval_steps", 1}, {"save_total_limit", 1}, {"load_best_model_at_end", true}, {"max_steps", 3}});
  train_ok(folder.path(), config);
  const std::string best = read_json(folder / "first/trainer_state.json").at("best_model_checkpoint");
  fs::rename(folder / "first", folder / "second");
  // From here on the loss only rises, so the best checkpoint remains that of the first part.
  config.update({{"output_dir", (folder / "second").string()}, {"max_steps", 6}, {"learning_rate", 3.0}});
  train_ok(folder.path(), config);
  const fs::path kept = folder / "second" / fs::path(best).filename();
  EXPECT_EQ(read_json(folder / "second/trainer_state.json").at("best_model_checkpoint"), kept.string());
  ASSERT_TRUE(fs::exists(kept));
  EXPECT_EQ(bytes_of(kept / "model.safetensors"), bytes_of(folder / "second/model.safetensors"));
}

TEST(Resume, NeverStartsOverAndLaterRunsDoNotMeetTheOldCheckpoints) {
  const TempFolder folder;
  Json config = config_of({.name = "", .lora = false}, folder / "output");
  config["save_total_limit"] = 2;
  train_ok(folder.path(), config);
  config.update({{"learning_rate", 0.001}, {"max_steps", 3}});
  const Outcome outcome = train_ok(folder.path(), config, {"--resume", "never"});
  EXPECT_THAT(outcome.err, Not(HasSubstr("resumed from")));
  EXPECT_EQ(history(folder / "output", "loss").size(), 3u);
  EXPECT_TRUE(fs::exists(folder / "output" / checkpoint(3)));
  EXPECT_FALSE(fs::exists(folder / "output" / checkpoint(kSteps)));
  EXPECT_THAT(train_ok(folder.path(), config).err, HasSubstr("at step 3 of 3"));
}

TEST(Resume, AFinishedRunIsLeftAsItIs) {
  const TempFolder folder;
  const Json config = config_of({.name = "", .lora = true}, folder / "output");
  train_ok(folder.path(), config);
  std::map<std::string, std::string> before;
  for (const char* file : {"adapter_model.safetensors", "train_results.json", "trainer_state.json", "metrics.jsonl"})
    before[file] = bytes_of(folder / "output" / file);
  train_ok(folder.path(), config);
  for (const auto& [file, contents] : before) EXPECT_EQ(bytes_of(folder / "output" / file), contents) << file;
}

TEST(Resume, FromANamedCheckpointLeavesItUntouched) {
  const TempFolder folder;
  Json config = config_of({.name = "", .lora = true}, folder / "one");
  train_ok(folder.path(), config);
  const fs::path from = folder / "one" / checkpoint(2);
  const std::string before = bytes_of(from / "adapter_model.safetensors");
  config["output_dir"] = (folder / "two").string();
  const Outcome outcome = train_ok(folder.path(), config, {"--resume", from.string()});
  EXPECT_THAT(outcome.err, HasSubstr("at step 2 of"));
  EXPECT_EQ(bytes_of(from / "adapter_model.safetensors"), before);
  expect_same_end(folder / "one", folder / "two", {.name = "", .lora = true});
}

TEST(Resume, FromANamedCheckpointOfItsOwnSetsLaterOnesAside) {
  const TempFolder folder;
  const Scenario s{.name = "", .lora = false};
  Json config = config_of(s, folder / "output");
  train_ok(folder.path(), config);
  config["learning_rate"] = 0.02;
  config["max_steps"] = kSteps - 1;  // as far as the signal lets it get
  const fs::path named = folder / "output" / checkpoint(2);
  const Outcome outcome = train_ok(folder.path(), config, {"--resume", named.string()});
  EXPECT_THAT(outcome.err, HasSubstr("of later steps"));
  for (int step = 3; step <= kSteps; ++step)
    EXPECT_TRUE(fs::exists((folder / "output" / checkpoint(step)).string() + ".superseded")) << step;
  EXPECT_FALSE(fs::exists(folder / "output" / checkpoint(kSteps)));
  // A run that resumes automatically uses the new steps.
  config["max_steps"] = kSteps;
  EXPECT_THAT(train_ok(folder.path(), config).err, HasSubstr("at step " + std::to_string(kSteps - 1)));
  EXPECT_GT(largest_difference(folder / "output" / checkpoint(kSteps),
                               (folder / "output" / checkpoint(kSteps)).string() + ".superseded"),
            0);
}

TEST(Resume, ToFewerStepsThanAreDoneIsTold) {
  const TempFolder folder;
  Json config = config_of({.name = "", .lora = true}, folder / "output");
  train_ok(folder.path(), config);
  config["max_steps"] = 1;
  EXPECT_THAT(train_ok(folder.path(), config).err, HasSubstr("the config ends at step 1, but "));
}

TEST(Resume, GoesBackToTheNewestWholeCheckpoint) {
  const TempFolder folder;
  const Scenario s{.name = "", .lora = false};
  const Json config = config_of(s, folder / "output");
  train_ok(folder.path(), config);
  fs::copy(folder / "output", folder / "whole", fs::copy_options::recursive);
  fs::resize_file(folder / "output" / checkpoint(kSteps) / "model.safetensors", 1000);
  fs::remove(folder / "output" / checkpoint(kSteps - 1) / "optimizer.safetensors");
  fs::remove(folder / "output/model.safetensors");
  const Outcome outcome = train_ok(folder.path(), config);
  EXPECT_THAT(outcome.err, HasSubstr(checkpoint(kSteps) + " is damaged"));
  EXPECT_THAT(outcome.err, HasSubstr(checkpoint(kSteps - 1) + " is damaged"));
  EXPECT_THAT(outcome.err, HasSubstr("at step " + std::to_string(kSteps - 2) + " of"));
  expect_same_end(folder / "output", folder / "whole", s);
}

// Without updates, the losses of the steps show which rows each had.
TEST(DataSeed, OrdersTheRowsAndNothingElse) {
  const TempFolder folder;
  const auto losses = [&](const Json& seeds) {
    Json config = tiny_run(folder / "output");
    config.update({{"learning_rate", 0.0}, {"warmup_steps", 0}});
    config.update(seeds);
    fs::remove_all(folder / "output");
    train_ok(folder.path(), config);
    return column(history(folder / "output", "loss"), "loss");
  };
  const auto usual = losses({{"seed", 42}}), other = losses({{"seed", 42}, {"data_seed", 7}});
  EXPECT_NE(other, usual);
  EXPECT_EQ(losses({{"seed", 7}}), other) << "data_seed is the seed if it is not given";
  EXPECT_EQ(losses({{"seed", 7}, {"data_seed", 42}}), usual);
}

TEST(Resume, ACheckpointOfTheModelOnlyCannotGoOn) {
  const TempFolder folder;
  Json config = config_of({.name = "", .lora = false}, folder / "output");
  config["save_only_model"] = true;
  train_ok(folder.path(), config);
  EXPECT_FALSE(fs::exists(folder / "output" / checkpoint(2) / "optimizer.safetensors"));
  const Outcome outcome = qtrain({.words = {(folder / "config.json").string(), "max_steps=9"}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("save_only_model"));
}

TEST(Resume, WhatIsNoCheckpointIsIgnoredOrRefused) {
  const TempFolder folder;
  Json config = config_of({.name = "", .lora = false, .changes = {{"max_steps", 2}}}, folder / "output");
  train_ok(folder.path(), config);
  for (const char* saved : {"checkpoint-1", "checkpoint-2", "model.safetensors", "manifest.json", "train_results.json"})
    fs::remove_all(folder / "output" / saved);  // as if the run had been killed in its first save
  fs::create_directories(folder / "output/checkpoint-9.tmp");
  fs::create_directories(folder / "output/checkpoint-8");
  write_file(folder / "output/checkpoint-9.tmp/manifest.json", "{}");
  write_file(folder / "output/.model.safetensors.4194304.tmp", "x");  // no process has such a number
  write_file(folder / "output/.notes.tmp", "of somebody else");
  EXPECT_THAT(train_ok(folder.path(), config).err, Not(HasSubstr("resumed from")));
  EXPECT_FALSE(fs::exists(folder / "output/checkpoint-9.tmp")) << "what an interrupted save has left";
  EXPECT_FALSE(fs::exists(folder / "output/.model.safetensors.4194304.tmp"));
  EXPECT_TRUE(fs::exists(folder / "output/.notes.tmp"));
  const Outcome outcome =
      qtrain({.words = {(folder / "config.json").string(), "--resume", (folder / "output/checkpoint-8").string()}});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
}

}  // namespace
}  // namespace qtrain::e2e
