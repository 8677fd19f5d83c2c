// Training on several ranks gives the same result as on one, and no run hangs if a rank is lost.
#include <fmt/format.h>
#include <signal.h>

#include "core/os/file.h"
#include "tests/e2e/ranks.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// log_history without values that differ between runs or count one rank's micro-batches.
Json history_of_updates(const fs::path& output) {
  Json rows = history_without_times(output);
  for (Json& row : rows) row.erase("epoch");
  return rows;
}

std::vector<double> losses(const fs::path& output) {
  return column(history(output, "loss"), "loss");
}

class RanksOnACurve : public ::testing::TestWithParam<std::string> {};

// Two ranks with half of the micro-batches each match transformers' curve of one process as closely as one rank does.
TEST_P(RanksOnACurve, TwoHaveThatOfTransformers) {
  const fs::path folder = kGoldens / "curves" / GetParam();
  const TempFolder output;
  qtrain_ok({.words = {"config.json", "output_dir=" + (output / "out").string(), "nproc=2", "device=cpu",
                       "gradient_accumulation_steps=1"},
             .folder = folder});
  const Json expected = read_json(folder / "expected.json");
  const double spread = 4 * expected.at("spread").at("loss").get<double>() + 1e-6;
  const auto rows = history(output / "out", "loss");
  ASSERT_EQ(rows.size(), expected.at("steps").size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_NEAR(rows[i].at("loss"), expected.at("steps")[i].at("loss"), spread) << "step " << i + 1;
}
INSTANTIATE_TEST_SUITE_P(All, RanksOnACurve,
                         ::testing::Values("llama_full", "llama_dora", "qlora_nf4", "qwen3_moe_balanced"),
                         [](const auto& info) { return info.param; });

TEST_F(Ranks, AnyNumberGivesTheSameBits) {
  train_ok(folder_.path(), base());
  const std::string whole = bytes_of(at("out/adapter_model.safetensors"));
  const Json rows = history_of_updates(at("out"));
  for (const int ranks : {2, 3, 6}) {
    SCOPED_TRACE(ranks);
    fs::remove_all(at("out"));
    train_ok(folder_.path(), divided(base(), ranks));
    EXPECT_EQ(bytes_of(at("out/adapter_model.safetensors")), whole);
    EXPECT_EQ(history_of_updates(at("out")), rows);
  }
}

TEST_F(Ranks, WithoutThatOnlyTheLastBitsDiffer) {
  Json config = base();
  config.update({{"deterministic_reduce", false}, {"lora_dropout", 0.2}});
  train_ok(folder_.path(), config);
  const std::vector<double> alone = losses(at("out"));
  fs::remove_all(at("out"));
  train_ok(folder_.path(), divided(config, 3));
  const std::vector<double> shared = losses(at("out"));
  ASSERT_EQ(alone.size(), 9u);
  ASSERT_EQ(shared.size(), alone.size());
  // float32 sums of gradients in a different order, over nine updates with a learning rate of 0.005.
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(shared[i], alone[i], 1e-4) << "step " << i + 1;
}

TEST_F(Ranks, EvaluateEachRowOnce) {
  Json config = base();
  config.update({{"eval_dataset_name", config.at("dataset_name")},
                 {"eval_strategy", "steps"},
                 {"eval_steps", 3},
                 {"per_device_eval_batch_size", 2},
                 {"max_steps", 3}});
  train_ok(folder_.path(), config);
  const std::vector<double> alone = column(history(at("out"), "eval_loss"), "eval_loss");
  fs::remove_all(at("out"));
  train_ok(folder_.path(), divided(config, 3));
  const std::vector<double> shared = column(history(at("out"), "eval_loss"), "eval_loss");
  ASSERT_EQ(alone.size(), 1u);
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_NEAR(shared[0], alone[0], 1e-12);  // the same losses in f64, added in a different order
}

TEST_F(Ranks, AnotherNumberGoesOnWithTheSameBits) {
  train_ok(folder_.path(), base());
  const std::string whole = bytes_of(at("out/adapter_model.safetensors"));
  fs::remove_all(at("out"));
  Json config = base();
  config.update({{"save_strategy", "steps"}, {"save_steps", 4}});
  train_ok(folder_.path(), divided(config, 3));
  for (const int ranks : {1, 2}) {
    const Outcome outcome =
        train_ok(folder_.path(), divided(config, ranks),
                 {"--resume", at("out/checkpoint-4").string(), "output_dir=" + at("more").string()});
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("nproc {} (was 3)", ranks)));
    EXPECT_EQ(bytes_of(at("more/adapter_model.safetensors")), whole) << ranks;
    fs::remove_all(at("more"));
  }
  // Without the other rank's share, an update would see fewer rows.
  const Outcome outcome = qtrain({.words = {at("config.json").string(), "--resume", at("out/checkpoint-4").string(),
                                            "nproc=1", "output_dir=" + at("more").string()}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("nproc = 3, the config says 1"));
}

/// A run of several ranks while it is in progress.
class RunningRanks {
 public:
  RunningRanks(const std::vector<std::string>& words, int ranks)
      : process_(launch_of({.words = words})), ranks_(ranks) {
    EXPECT_TRUE(process_.waits_for("checkpoint-4")) << process_.said();
    pids_ = children_of(process_.pid());
    EXPECT_EQ(pids_.size(), static_cast<std::size_t>(ranks_));
  }
  Process& process() { return process_; }
  pid_t of(int rank) const { return pids_.at(static_cast<std::size_t>(rank)); }
  /// Checks that none of its processes is left.
  void expect_gone() const {
    for (const pid_t pid : pids_) EXPECT_NE(::kill(pid, 0), 0) << pid;
  }

 private:
  Process process_;
  int ranks_;
  std::vector<pid_t> pids_;
};

class LostRank : public Ranks, public ::testing::WithParamInterface<int> {};

TEST_P(LostRank, EndsTheRunAndIsNamed) {
  RunningRanks run(words(long_run(3)), 3);
  ::kill(run.of(GetParam()), SIGKILL);
  const Outcome outcome = run.process().wait();
  EXPECT_EQ(outcome.code, 7);
  EXPECT_THAT(outcome.err, HasSubstr(fmt::format("rank {} was ended by signal 9", GetParam())));
  EXPECT_EQ(outcome.err.find("error:"), outcome.err.rfind("error:")) << outcome.err;
  run.expect_gone();
}
INSTANTIATE_TEST_SUITE_P(Each, LostRank, ::testing::Values(0, 2));

TEST_F(Ranks, AStoppedRankEndsTheRunInTime) {
  RunningRanks run(words(long_run(3)), 3);
  ::kill(run.of(1), SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run.process().wait();
  EXPECT_EQ(outcome.code, 7);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: rank 1 did not reach collective"), HasSubstr("no sign of life")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));  // 4 s of ddp_timeout, 10 s of grace
  run.expect_gone();
}

TEST_F(Ranks, AStopIsForAll) {
  for (const int signal : {SIGTERM, SIGINT}) {
    RunningRanks run(words(long_run(3)), 3);
    run.process().signal(signal);
    const Outcome outcome = run.process().wait();
    EXPECT_EQ(outcome.code, 75) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("run the same command to continue"), Not(HasSubstr("error"))));
    run.expect_gone();
    fs::remove_all(at("out"));
  }
}

/// The run is stopped while all ranks evaluate together, after the second of four steps.
class StopInAnEvaluation : public Ranks, public ::testing::WithParamInterface<int> {
 protected:
  Json config() const {
    std::string rows;
    for (int i = 0; i < (GetParam() == 0 ? 20000 : 3000); ++i)
      rows += fmt::format("{{\"input_ids\": [5, {}, 7, 8, 9, 10, 11]}}\n", 4 + i % 50);
    write_file(at("rows.jsonl"), rows);
    Json config = divided(base(), 3);
    config.update({{"max_steps", 4},
                   {"eval_dataset_name", at("rows.jsonl").string()},
                   {"eval_strategy", "steps"},
                   {"eval_steps", 2},
                   {"per_device_eval_batch_size", 1},
                   {"zero_stage", GetParam()}});
    return config;
  }
};

TEST_P(StopInAnEvaluation, IsGoneOnFromWithTheSameBits) {
  train_ok(folder_.path(), config());
  const std::string whole = bytes_of(at("out/adapter_model.safetensors"));
  const Json rows = history_of_updates(at("out"));
  for (const int signal : {SIGTERM, SIGINT}) {
    fs::remove_all(at("out"));
    Launch launch = launch_of({.words = words(config())});
    launch.columns = 80;
    launch.environment = {"TERM=xterm"};
    Process process(launch);
    ASSERT_TRUE(process.waits_for("evaluating")) << process.said();
    signal == SIGINT ? process.type("\x03") : process.signal(signal);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, 75) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("run the same command to continue"), Not(HasSubstr("eval_loss"))));
    EXPECT_EQ(checkpoint_names(at("out")), std::vector<std::string>{"checkpoint-2"});
    EXPECT_THAT(qtrain_ok({.words = words(config())}).err, HasSubstr("resumed from"));
    EXPECT_EQ(bytes_of(at("out/adapter_model.safetensors")), whole);
    EXPECT_EQ(history_of_updates(at("out")), rows);
  }
}
INSTANTIATE_TEST_SUITE_P(Stage, StopInAnEvaluation, ::testing::Values(0, 3));

TEST_F(Ranks, AStopOfOneRankIsForAll) {
  RunningRanks run(words(long_run(3)), 3);
  ::kill(run.of(2), SIGTERM);
  const Outcome outcome = run.process().wait();
  EXPECT_EQ(outcome.code, 75);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("warning: stopped at step"), Not(HasSubstr("error"))));
  run.expect_gone();
}

TEST_F(Ranks, AKilledLauncherLeavesNoRanks) {
  RunningRanks run(words(long_run(2)), 2);
  run.process().signal(SIGKILL);
  run.process().wait();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto runs = [&](int rank) { return ::kill(run.of(rank), 0) == 0; };
  while ((runs(0) || runs(1)) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  run.expect_gone();
}

TEST_F(Ranks, ARunGoesOnByItself) {
  Json config = divided(base(), 3);
  config.update({{"max_steps", 60}});
  train_ok(folder_.path(), config);
  const std::string whole = bytes_of(at("out/adapter_model.safetensors"));
  fs::remove_all(at("out"));
  config.update({{"save_strategy", "steps"}, {"save_steps", 2}, {"max_restarts", 1}, {"ddp_timeout", 10}});
  RunningRanks run(words(config), 3);
  ::kill(run.of(1), SIGKILL);
  const Outcome outcome = run.process().wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("restarting the ranks from the last checkpoint; 0 more restarts"),
                                 HasSubstr("resumed from")));
  EXPECT_EQ(bytes_of(at("out/adapter_model.safetensors")), whole);
}

TEST_F(Ranks, MoreThanThereAreProcessorsAreToldOf) {
  Json config = divided(base(), 2);
  config["max_steps"] = 1;
  Launch launch = launch_of({.words = words(config)});
  launch.argv.insert(launch.argv.begin(), {"/usr/bin/taskset", "-c", "0"});
  EXPECT_THAT(Process(launch).wait().err, HasSubstr("warning: 2 ranks share 1 processor and slow each other down"));
}

TEST_F(Ranks, TheSlowestIsTold) {
  Json config = divided(base(), 3);
  config.update({{"max_steps", 2}});
  train_ok(folder_.path(), config);
  for (const Json& row : read_jsonl(at("out/metrics.jsonl"))) {
    if (!row.contains("loss")) continue;
    const auto seconds = row.at("rank_seconds").get<std::vector<double>>();
    ASSERT_EQ(seconds.size(), 3u);
    const double slowest = seconds.at(row.at("slowest_rank").get<std::size_t>());
    for (const double s : seconds) EXPECT_TRUE(s > 0 && s <= slowest) << s;
  }
}

// Signals that arrive before the ranks can handle them are deferred.
TEST_F(Ranks, AStopAtTheVeryBeginningIsNoLoss) {
  for (const int milliseconds : {0, 20, 60}) {
    Process process(launch_of({.words = words(long_run(3))}));
    ASSERT_TRUE(process.waits_for("starting 3 ranks"));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    process.signal(SIGTERM);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, 75) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("was ended by"))) << milliseconds;
  }
}

TEST_F(Ranks, ASecondInterruptLeavesAtOnce) {
  RunningRanks run(words(long_run(3)), 3);
  ::kill(run.of(1), SIGSTOP);  // so that the first rank takes long
  run.process().signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  run.process().signal(SIGINT);
  EXPECT_EQ(run.process().wait().code, 130);
  ::kill(run.of(1), SIGCONT);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  const auto any_left = [&] {
    return ::kill(run.of(0), 0) == 0 || ::kill(run.of(1), 0) == 0 || ::kill(run.of(2), 0) == 0;
  };
  while (any_left() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  run.expect_gone();
}

TEST_F(Ranks, ARestartKeepsToTheCheckpointThatWasNamed) {
  Json config = divided(base(), 3);
  config.update({{"save_strategy", "steps"}, {"save_steps", 4}, {"max_steps", 8}});
  train_ok(folder_.path(), config);
  config.update({{"output_dir", at("more").string()},
                 {"save_strategy", "no"},
                 {"max_steps", 2000},
                 {"max_restarts", 1},
                 {"ddp_timeout", 10}});
  std::vector<std::string> all = words(config);
  all.insert(all.end(), {"--resume", at("out/checkpoint-4").string()});
  Process process(launch_of({.words = all}));
  ASSERT_TRUE(process.waits_for("step 6/")) << process.said();
  ::kill(children_of(process.pid()).at(1), SIGKILL);
  ASSERT_TRUE(process.waits_for("restarting the ranks; 0 more restarts")) << process.said();
  ASSERT_TRUE(process.waits_for("step 9/")) << process.said();
  process.signal(SIGTERM);
  const std::string said = process.wait().err;
  const std::string resumed = "resumed from " + at("out/checkpoint-4").string();
  EXPECT_NE(said.find(resumed), said.rfind(resumed)) << said;
}

TEST_F(Ranks, AnErrorOfOneIsNoMysteryToTheOthers) {
  Json config = divided(base(), 3);
  config["output_dir"] = "/proc/nothing/can/be/here";
  const Outcome outcome = qtrain({.words = words(config)});
  EXPECT_EQ(outcome.code, 6);
  EXPECT_THAT(outcome.err, Not(HasSubstr("no sign of life")));
}

TEST_F(Ranks, APlanIsThatOfAllRanks) {
  const Json config = divided(base(), 3);
  std::vector<std::string> all = words(config);
  all.insert(all.begin(), "estimate");
  all.emplace_back("--json");
  const Json estimate = Json::parse(qtrain_ok({.words = all}).out);
  EXPECT_EQ(estimate.at("ranks"), 3);
  EXPECT_GT(estimate.at("memory").at("communication"), 0);
}

TEST_F(Ranks, OneErrorIsSaidOnce) {
  Json config = divided(base(), 3);
  config["dataset_name"] = at("none.jsonl").string();
  const Outcome outcome = qtrain({.words = words(config)});
  EXPECT_EQ(outcome.code, 3);
  const std::string cause = "none.jsonl";
  EXPECT_NE(outcome.err.find(cause), std::string::npos) << outcome.err;
  config["no_such_key"] = 1;
  const Outcome usage = qtrain({.words = words(config)});
  EXPECT_EQ(usage.code, 2);
  EXPECT_EQ(usage.err.find("no_such_key"), usage.err.rfind("no_such_key")) << usage.err;
}

TEST_F(Ranks, AnswerAsOneDocument) {
  Json config = divided(base(), 2);
  config["max_steps"] = 2;
  std::vector<std::string> all = words(config);
  all.emplace_back("--json");
  const Outcome outcome = qtrain_ok({.words = all});
  EXPECT_EQ(Json::parse(outcome.out).at("step"), 2);
}

}  // namespace
}  // namespace qtrain::e2e
