// Ranks that another program starts, as torchrun and the launchers of several machines do.
#include <fmt/format.h>
#include <signal.h>

#include <list>

#include "core/os/file.h"
#include "tests/e2e/started_ranks.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(StartedRanks, MeetByTheVariablesOfTorchrun) {
  train_ok(folder_.path(), base());
  const std::string whole = bytes_of(at("out/adapter_model.safetensors"));
  fs::remove_all(at("out"));
  Json config = divided(base(), 2);
  config.erase("nproc");
  Process zero(rank(0, 2, config)), one(rank(1, 2, config));
  const Outcome of_zero = zero.wait(), of_one = one.wait();
  EXPECT_EQ(of_zero.code, 0) << of_zero.err;
  EXPECT_EQ(of_one.code, 0) << of_one.err;
  EXPECT_THAT(of_zero.err, HasSubstr("rank 0 of 2, started by torchrun"));
  EXPECT_EQ(bytes_of(at("out/adapter_model.safetensors")), whole);
}

// The number of ranks in the config does not matter.
TEST_F(StartedRanks, DivideAmongThoseThatThereAre) {
  train_ok(folder_.path(), base());
  const std::string whole = bytes_of(at("out/adapter_model.safetensors"));
  for (const int said : {0, 1, 4}) {
    fs::remove_all(at("out"));
    Json config = divided(base(), 2);
    config["zero_stage"] = 3;
    config.erase("nproc");
    if (said > 0) config["nproc"] = said;
    Process zero(rank(0, 2, config)), one(rank(1, 2, config));
    const Outcome of_zero = zero.wait();
    EXPECT_EQ(of_zero.code, 0) << of_zero.err;
    EXPECT_EQ(one.wait().code, 0);
    EXPECT_EQ(bytes_of(at("out/adapter_model.safetensors")), whole) << said;
    const Json planned = read_json(at("out/train_results.json")).at("memory").at("planned");
    EXPECT_GT(planned.at("gathered_units"), 0) << said;
  }
}

TEST_F(StartedRanks, WriteTheirPartsIntoOneFolder) {
  Json config = divided(base(), 2), elsewhere = config;
  config["zero_stage"] = elsewhere["zero_stage"] = 1;
  elsewhere["output_dir"] = at("elsewhere").string();
  fs::create_directories(at("elsewhere"));
  Process zero(rank(0, 2, config)), one(rank(1, 2, elsewhere));
  for (Process* p : {&zero, &one}) {
    const Outcome outcome = p->wait();
    EXPECT_EQ(outcome.code, 6) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("rank 1 does not see the files that rank 0 writes there"));
  }
}

TEST_F(StartedRanks, SeveralMachinesAreOneRun) {
  train_ok(folder_.path(), base());
  const std::string whole = bytes_of(at("out/adapter_model.safetensors"));
  fs::remove_all(at("out"));
  Json config = divided(base(), 6);
  config.update({{"nproc", 3}, {"nnodes", 2}, {"master_addr", "127.0.0.1"}, {"master_port", port_}});
  std::vector<std::string> one = words(config), other = one;
  other.emplace_back("node_rank=1");
  Process first(launch_of({.words = one})), second(launch_of({.words = other}));
  const Outcome of_first = first.wait(), of_second = second.wait();
  EXPECT_EQ(of_first.code, 0) << of_first.err;
  EXPECT_EQ(of_second.code, 0) << of_second.err;
  EXPECT_THAT(of_first.err, HasSubstr("starting 3 ranks on this machine, 6 in total, which meet at 127.0.0.1:"));
  EXPECT_EQ(bytes_of(at("out/adapter_model.safetensors")), whole);
}

// The config states the number of ranks on one machine, or none.
TEST_F(StartedRanks, ShareTokensOverMachines) {
  Json config = base();
  config.update({{"lora_dropout", 0}, {"context_parallel_size", 4}, {"device", "cpu"}, {"max_steps", 2}});
  for (const int said : {0, 3}) {
    if (said > 0) config["nproc"] = said;
    std::list<Process> ranks;
    for (int r = 0; r < 4; ++r) ranks.emplace_back(rank(r, {4, 2}, config));
    for (Process& p : ranks) {
      const Outcome outcome = p.wait();
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
  }
  config["context_parallel_size"] = 3;
  EXPECT_THAT(Process(rank(0, {4, 2}, config)).wait().err, HasSubstr("does not divide the 4 ranks"));
}

TEST_F(StartedRanks, WithAnotherConfigAreRefused) {
  Json other = base();
  other["learning_rate"] = 0.25;
  Process zero(rank(0, 2, base())), one(rank(1, 2, other));
  for (Process* p : {&zero, &one}) {
    const Outcome outcome = p->wait();
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("rank 1 differs from rank 0 in learning_rate (0.25, rank 0 has 0.005)"));
  }
}

TEST_F(StartedRanks, WithAnotherCheckpointAreRefused) {
  Json config = base();
  config.update({{"save_strategy", "steps"}, {"save_steps", 2}, {"max_steps", 4}, {"output_dir", "out"}});
  for (const char* host : {"a", "b"}) {
    config["seed"] = 40 + *host;
    fs::create_directories(at(host));
    write_file(at(host) / "run.json", dump_json(config));
    qtrain_ok({.words = {"run.json"}, .folder = at(host)});
  }
  config.update({{"seed", 40 + 'a'}, {"max_steps", 8}});
  Launch of_zero = rank(0, 2, divided(config, 2)), of_one = rank(1, 2, divided(config, 2));
  of_zero.folder = at("a");
  of_one.folder = at("b");
  Process zero(of_zero), one(of_one);
  const Outcome zero_end = zero.wait(), one_end = one.wait();
  EXPECT_NE(zero_end.code, 0);
  EXPECT_NE(one_end.code, 0);
  EXPECT_THAT(zero_end.err, Not(HasSubstr("step 5/")));
}

TEST_F(StartedRanks, DoNotWaitForEverForOneThatNeverComes) {
  Json config = base();
  config["ddp_timeout"] = 2;
  const Outcome outcome = Process(rank(0, 2, config)).wait();
  EXPECT_EQ(outcome.code, 7);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("rank 1 did not connect within 2 s"), Not(HasSubstr("rank rank"))));
}

/// A run of three ranks while it is in progress.
class LostStartedRank : public StartedRanks {
 protected:
  Json config(int steps) const {
    Json config = divided(base(), 3);
    config.erase("nproc");
    config.update({{"max_steps", steps}, {"zero_stage", 3}, {"max_restarts", 2}});
    return config;
  }
  /// Kills one of them, and expects this message from all others.
  void expect_said(int lost, const std::string& said) {
    std::list<Process> ranks;
    for (int r = 0; r < 3; ++r) ranks.emplace_back(rank(r, 3, config(100000)));
    ASSERT_TRUE(ranks.front().waits_for("step 3/")) << ranks.front().said();
    std::next(ranks.begin(), lost)->signal(SIGKILL);
    for (int r = 0; Process & p : ranks) {
      const Outcome outcome = p.wait();
      if (r++ == lost) continue;
      EXPECT_EQ(outcome.code, 7) << outcome.err;
      EXPECT_THAT(outcome.err, AllOf(HasSubstr(said), HasSubstr("run the same command again")));
    }
  }
};

// The message includes where the ranks meet.
TEST_F(LostStartedRank, IsNamedWhereItIsTheFirst) {
  expect_said(0, fmt::format("rank 0 at 127.0.0.1:{}, where ranks meet, is gone", port_));
}

TEST_F(LostStartedRank, IsNamedByAllOthers) {
  expect_said(2, "error: rank 2 did not reach collective");
}

TEST_F(LostStartedRank, IsStartedAgainByWhoStartedIt) {
  const Json config = this->config(1);
  std::list<Process> ranks;
  for (int r = 0; r < 3; ++r) ranks.emplace_back(rank(r, 3, config));
  for (int r = 0; Process & p : ranks) {
    const Outcome outcome = p.wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto told = HasSubstr("max_restarts has no effect: torchrun started the ranks");
    if (r++ == 0)
      EXPECT_THAT(outcome.err, told);
    else
      EXPECT_THAT(outcome.err, Not(told));
  }
}

}  // namespace
}  // namespace qtrain::e2e
