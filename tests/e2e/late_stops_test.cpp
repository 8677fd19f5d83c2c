// A stop close to the moment when a result gets its final name. Either the command says that it stops, leaves nothing
// unfinished and ends with 75, or it is done, does not mention the stop and ends with 0.
#include "tests/e2e/interrupted.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

/// Commands that write a single result, on a small model.
class WritesAResult : public Interrupted {
 protected:
  std::vector<std::vector<std::string>> commands() {
    const fs::path model = at("model");
    write_model(model, Json::object());
    Json lora = tiny_lora_run(at("run"));
    lora.update({{"model_name_or_path", model.string()}, {"max_steps", 1}});
    write_file(at("prompts.jsonl"), "{\"prompt\": \"hello\", \"completion\": \"yes\"}\n");
    lora.update({{"dataset_name", at("prompts.jsonl").string()}, {"eval_dataset_name", at("prompts.jsonl").string()}});
    write_file(at("lora.json"), dump_json(lora));
    const std::string run = at("run").string(), config = at("lora.json").string(), gguf = at("model.gguf").string();
    qtrain_ok({.words = {config}});
    qtrain_ok({.words = {"export", "--model", model.string(), "--output", gguf}});
    const std::string name = model.string(), out = at("outputs/result").string();
    return {{"generate", "--model", name, "--input", at("prompts.jsonl").string(), "--output", out},
            {"quantize", "--model", name, "--output", out},
            {"merge", "--model", name, "--adapter", run, "--output", out},
            {"export", "--model", name, "--output", out, "--type", "f16"},
            {"export", "--model", name, "--adapter", run, "--output", out},
            {"import", gguf, "--output", out},
            {"preprocess", config, "--dump", out},
            {"eval", config, "--generate", "--base", "--max_new_tokens", "1", "--rows", out},
            {"bench", "step", config, "--device", "cpu", "--json", out},
            {"report", run, "--output", out},
            {"compare", run, run, "--output", out}};
  }
};

// Either the stop comes too late and is not mentioned, or nothing is left of the result.
TEST_F(WritesAResult, IsStoppedOrDoneButNeverBoth) {
  fs::create_directories(at("outputs"));
  for (const auto& words : commands()) {
    int stopped = 0, done = 0;
    for (const char* call : {"fsync", "rename", "renamed"})
      for (int number = 1; number < 40; ++number) {
        const auto launch = launch_stopped(words, {.call = call, .text = {}, .number = number});
        if (!launch) GTEST_SKIP() << "no library can be loaded before the sanitizer";
        const Outcome outcome = Process(*launch).wait();
        const bool over = outcome.code == 0;
        const std::string about = fmt::format("{} at {} {}: {}", words[0], call, number, outcome.err);
        EXPECT_TRUE(over || outcome.code == 75) << about;
        EXPECT_EQ(outcome.err.find("stopp") != std::string::npos, !over) << about;
        EXPECT_EQ(files_in(at("outputs")).size(), over ? 1u : 0u) << about;
        fs::remove_all(at("outputs/result"));
        ++(over ? done : stopped);
        if (over) break;  // the first stop that is too late
      }
    EXPECT_GT(stopped, 0) << words[0];
    EXPECT_EQ(done, 3) << words[0];
  }
}

/// How a run ended that was told to stop at some point.
struct StoppedRun {
  int code;
  bool told_stop, told_saving, has_result;
};

/// A run of two steps that saves after each is told to stop at one moment; then the same command runs again.
class LastStep : public Interrupted {
 protected:
  std::optional<StoppedRun> stopped(const Moment& moment) {
    fs::remove_all(at("out"));
    const std::vector<std::string> words = training(1, 2);
    const auto launch = launch_stopped(words, moment);
    if (!launch) return {};
    const Outcome outcome = Process(*launch).wait();
    const auto says = [&](const char* text) { return outcome.err.find(text) != std::string::npos; };
    const StoppedRun run{.code = outcome.code,
                         .told_stop = says("Stopping") || says("stopping") || says("stopped"),
                         .told_saving = says("saving the model"),
                         .has_result = fs::exists(at("out/adapter_model.safetensors"))};
    EXPECT_TRUE(run.code == 0 || run.code == 75) << outcome.err;
    EXPECT_EQ(run.told_stop, run.code == 75) << outcome.err;
    EXPECT_EQ(run.has_result, run.code == 0) << outcome.err;
    if (run.code == 0) return run;
    EXPECT_EQ(says("stopped at step"), fs::exists(at("out/resolved_config.json"))) << "it had begun";
    qtrain_ok({.words = words});
    EXPECT_TRUE(fs::exists(at("out/adapter_model.safetensors")));
    return run;
  }
};

TEST_F(LastStep, AStopBehindTheLastStepIsDoneByTheSameCommand) {
  const auto run = stopped({.call = {}, .text = "step 2/2"});
  if (!run) GTEST_SKIP() << "no library can be loaded before the sanitizer";
  EXPECT_EQ(run->code, 75);
  EXPECT_TRUE(fs::exists(at("out/checkpoint-2")));
}

// If the stop comes while the result is written, the run is done and says so.
TEST_F(LastStep, IsStoppedOrDoneButNeverBoth) {
  for (const char* call : {"fsync", "renamed"}) {
    int stopped_runs = 0, saved = 0;
    for (int number = 1; number < 200; ++number) {
      SCOPED_TRACE(fmt::format("{} {}", call, number));
      const auto run = stopped({.call = call, .text = {}, .number = number});
      if (!run) GTEST_SKIP() << "no library can be loaded before the sanitizer";
      EXPECT_FALSE(run->code == 75 && saved > 0) << "the command was done before the signal";
      if (run->code == 0 && !run->told_saving) break;  // no signal came
      ++(run->code == 75 ? stopped_runs : saved);
    }
    EXPECT_GT(stopped_runs, 0) << call;
    EXPECT_GT(saved, 0) << call;
  }
}

// A stop behind the evaluation comes before the save that is due, if one is; one behind the step, before the
// evaluation.
TEST_F(Interrupted, RunsLogAnEvaluationOnce) {
  const std::string behind_step = "step 2/4", behind_evaluation = "step 2: eval_loss";
  for (const int save_steps : {2, 100})
    for (const std::vector<std::string>& stops :
         {std::vector{behind_evaluation}, {behind_step}, {behind_step, behind_evaluation}}) {
      SCOPED_TRACE(
          fmt::format("saves after {} steps, {} stops, the first behind {}", save_steps, stops.size(), stops[0]));
      fs::remove_all(at("out"));
      Json config = tiny_run(at("out"));
      config.update({{"device", "cpu"},
                     {"max_steps", 4},
                     {"eval_dataset_name", (kGoldens / "curves/cosine/data.jsonl").string()},
                     {"eval_strategy", "steps"},
                     {"eval_steps", 2},
                     {"save_strategy", "steps"},
                     {"save_steps", save_steps}});
      write_file(at("run.json"), dump_json(config));
      for (const std::string& stop : stops) {
        const auto launch = launch_stopped({at("run.json").string()}, {.call = {}, .text = stop});
        if (!launch) GTEST_SKIP() << "no library can be loaded before the sanitizer";
        const Outcome outcome = Process(*launch).wait();
        EXPECT_EQ(outcome.code, 75) << outcome.err;
        EXPECT_THAT(checkpoint_names(at("out")), ::testing::ElementsAre("checkpoint-2"));
      }
      qtrain_ok({.words = {at("run.json").string()}});
      const auto steps_of = [](const std::vector<Json>& rows) {
        std::vector<int> steps;
        for (const Json& row : rows)
          if (row.contains("eval_loss")) steps.push_back(row.at("step"));
        return steps;
      };
      EXPECT_THAT(steps_of(history(at("out"), "eval_loss")), ::testing::ElementsAre(2, 4));
      EXPECT_THAT(steps_of(read_jsonl(at("out/metrics.jsonl"))), ::testing::ElementsAre(2, 4));
      EXPECT_EQ(qtrain({.words = {"verify", at("out").string(), "--scratch", folder_.path().string()}}).code, 0);
    }
}

TEST_F(Interrupted, TuningWritesTheFastestWhenItIsStoppedBehindItsLastTrial) {
  Json config = tiny_run(at("out"));
  config["device"] = "cpu";
  write_file(at("run.json"), dump_json(config));
  const auto launch = launch_stopped({"tune", at("run.json").string(), "--steps", "1", "--trials", "1"},
                                     {.call = {}, .text = " tokens/s"});
  if (!launch) GTEST_SKIP() << "no library can be loaded before the sanitizer";
  const Outcome outcome = Process(*launch).wait();
  EXPECT_EQ(outcome.code, 75) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("stopped: wrote the fastest config measured so far"));
  EXPECT_EQ(read_json(at("run.tuned.json")).at("_written_by"), "qtrain tune");
}

TEST_F(Interrupted, BenchIsStoppedOrDoneButNeverBoth) {
  int stopped = 0, done = 0;
  for (int number = 1; number < 40 && done == 0; ++number) {
    const auto launch = launch_stopped(
        {"bench", "rms_norm", "--device", "cpu", "--small", "--json", at("bench.json").string(), "--overwrite"},
        {.call = "renamed", .text = {}, .number = number});
    if (!launch) GTEST_SKIP() << "no library can be loaded before the sanitizer";
    const Outcome outcome = Process(*launch).wait();
    const bool over = outcome.code == 0;
    EXPECT_TRUE(over || outcome.code == 75) << outcome.err;
    EXPECT_EQ(outcome.err.find("stopp") != std::string::npos, !over) << outcome.err;
    EXPECT_TRUE(fs::exists(at("bench.json"))) << "what was measured is kept";
    ++(over ? done : stopped);
  }
  EXPECT_GT(stopped, 2);
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace qtrain::e2e
