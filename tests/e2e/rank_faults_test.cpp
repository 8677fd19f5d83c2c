// Whatever happens to a rank in any phase, the run ends in time with the right code and one message that names the
// rank, leaves an intact checkpoint, and the same command then reaches the result of an undisturbed run.
#include "tests/e2e/rank_faults.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "tests/e2e/hosts.h"
#include "tests/e2e/started_ranks.h"

namespace qtrain::e2e {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kPeerLost = 7;

/// How a run ends after this fault.
struct Expected {
  std::string said;                  ///< the message, with "{}" for the rank
  std::chrono::seconds longest{20};  ///< without ddp_timeout, because connections break
};

// 6 s of ddp_timeout, 4 s to ask all ranks, 6 s of grace, and the same again for a busy machine.
constexpr std::chrono::seconds kAfterTimeout{40};

const std::map<std::string, Expected>& expectations() {
  static const std::map<std::string, Expected> all{
      {"kill", {"rank {} was ended by signal 9"}},
      {"segv", {"rank {} was ended by signal 11"}},
      {"stop", {"rank {} did not ", kAfterTimeout}},
      {"exit", {"rank {} ended before the others, with exit code 0", kAfterTimeout}},
      {"late", {"rank {} did not reach collective", kAfterTimeout}},
      {"skip", {"rank {} ", kAfterTimeout}},
      {"unequal", {"rank {} ", kAfterTimeout}}};
  return all;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

class OneRank : public RankFaults, public ::testing::WithParamInterface<RankFault> {
 protected:
  void SetUp() override {
    if (!faults_can_be_made()) GTEST_SKIP() << "no library can be loaded into a program with a sanitizer";
  }
  Launch faulty() const {
    Launch launch = launch_of({.words = words(divided(config(), GetParam().ranks))});
    launch.environment = variables(GetParam());
    return launch;
  }
  /// The same command, without the fault.
  void expect_to_go_on() const {
    const bool saved = !whole_checkpoints().empty();
    const Outcome outcome = qtrain_ok({.words = words(divided(config(), GetParam().ranks))});
    EXPECT_EQ(count(outcome.err, "resumed from"), saved ? 1 : 0) << outcome.err;
    EXPECT_EQ(result(), undisturbed());
  }
};

class LostRankOf : public OneRank {};

TEST_P(LostRankOf, ARunIsNamedAndTheRunGoesOn) {
  const Expected& expected = expectations().at(GetParam().kind);
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = Process(faulty()).wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, expected.longest);
  ASSERT_TRUE(has_happened()) << outcome.err;
  EXPECT_EQ(outcome.code, kPeerLost) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(fmt::format(fmt::runtime(expected.said), GetParam().rank)));
  EXPECT_EQ(count(outcome.err, "error:"), 1) << outcome.err;
  const bool is_wrong = GetParam().kind == "skip" || GetParam().kind == "unequal";
  EXPECT_EQ(count(outcome.err, "the ranks make different calls"), is_wrong ? 1 : 0) << outcome.err;
  expect_nothing_left();
  expect_newest_is_whole();
  expect_to_go_on();
}

// A rank may finish writing a checkpoint that needs no other rank, however slow its disk is.
TEST_F(RankFaults, ACheckpointIsFinishedWithoutTheLostRank) {
  if (!faults_can_be_made()) GTEST_SKIP() << "no library can be loaded into a program with a sanitizer";
  Json whole = divided(config(), 2);
  whole["zero_stage"] = 0;
  Launch launch = launch_of({.words = words(whole)});
  launch.environment = variables({"slow_disk", "saving", 2, 0});
  Process process(launch);
  while (process.running() && !fs::exists(at("out/checkpoint-4.tmp")))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(children_of(process.pid()).at(1), SIGKILL);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, kPeerLost) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 was ended by signal 9"));
  EXPECT_EQ(whole_checkpoints().back(), "checkpoint-4");
  expect_newest_is_whole();
}

class SlowRankOf : public OneRank {};

TEST_P(SlowRankOf, ARunIsWaitedFor) {
  const Outcome outcome = Process(faulty()).wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(count(outcome.err, "error:"), 0) << outcome.err;
  EXPECT_EQ(result(), undisturbed());
}

using StartedRanksOf = StartedByTorchrun<OneRank>;

TEST_P(StartedRanksOf, ARunWithOtherConfigsAreRefused) {
  const auto train = [&](double rate_of_one) {
    std::vector<std::unique_ptr<Process>> ranks;
    for (int r = 0; r < GetParam().ranks; ++r) {
      Json config = divided(this->config(), GetParam().ranks);
      if (r == GetParam().rank) config["learning_rate"] = rate_of_one;
      ranks.push_back(std::make_unique<Process>(rank(r, GetParam().ranks, config)));
    }
    std::vector<Outcome> ends;
    for (const auto& process : ranks) ends.push_back(process->wait());
    return ends;
  };
  for (const Outcome& outcome : train(0.25)) {
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err,
                HasSubstr(fmt::format("rank {} differs from rank 0 in learning_rate (0.25", GetParam().rank)));
    EXPECT_EQ(count(outcome.err, "error:"), 1) << outcome.err;
  }
  for (const Outcome& outcome : train(config().at("learning_rate"))) EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(result(), undisturbed());
}

class HostsOf : public OnTwoHosts<OneRank> {
 protected:
  /// The outcomes of the run on both machines, which `meanwhile` may disturb.
  std::array<Outcome, 2> train(const std::vector<std::string>& variables,
                               const std::function<void(Process&)>& meanwhile) {
    std::vector<std::unique_ptr<Process>> hosts;
    for (const int n : {0, 1}) {
      Launch launch = on_host(n, divided(config(), GetParam().ranks), GetParam().ranks / 2);
      launch.environment = variables;
      hosts.push_back(std::make_unique<Process>(launch));
    }
    meanwhile(*hosts[0]);
    return {hosts[0]->wait(), hosts[1]->wait()};
  }
  void expect_to_go_on_there() {
    for (const Outcome& outcome : train({}, [](Process&) {})) EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(result(), undisturbed());
  }
};

TEST_P(HostsOf, ARunEndBothWhereTheirCableIsCut) {
  auto begin = std::chrono::steady_clock::now();
  const auto ends = train(variables(GetParam()), [&](Process& first) {
    while (first.running() && !has_happened()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    cut();
    begin = std::chrono::steady_clock::now();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kAfterTimeout);
  for (const Outcome& outcome : ends) {
    EXPECT_EQ(outcome.code, kPeerLost) << outcome.err;
    EXPECT_EQ(count(outcome.err, "error:"), 1) << outcome.err;
    EXPECT_THAT(outcome.err,
                AnyOf(HasSubstr("did not reach"), HasSubstr("did not connect"), HasSubstr("where ranks meet, is gone"),
                      HasSubstr("cannot be connected"), HasSubstr("nothing answers at")));
  }
  const bool begins = GetParam().phase == "start";  // waits for the first rank that is missing
  EXPECT_THAT(ends[0].err, HasSubstr(fmt::format("error: {} did not ", GetParam().ranks == 2 ? "rank 1"
                                                                       : begins              ? "rank 2"
                                                                                             : "ranks 2, 3")));
  expect_nothing_left();
  expect_newest_is_whole();
  mend();
  expect_to_go_on_there();
}

// Two launchers on this machine, with a port that is already in use.
class PortOf : public OneRank {
 protected:
  std::vector<Outcome> train(std::uint16_t port) {
    std::vector<std::unique_ptr<Process>> hosts;
    for (const int n : {0, 1}) {
      Json config = divided(this->config(), GetParam().ranks);
      config.update(
          {{"nproc", GetParam().ranks / 2}, {"nnodes", 2}, {"master_addr", "127.0.0.1"}, {"master_port", port}});
      std::vector<std::string> all = words(config);
      all.push_back(fmt::format("node_rank={}", n));
      hosts.push_back(std::make_unique<Process>(launch_of({.words = all})));
    }
    std::vector<Outcome> ends;
    for (const auto& process : hosts) ends.push_back(process->wait());
    return ends;
  }
};

TEST_P(PortOf, ARunMayBeInUse) {
  Listener taken({.host = "127.0.0.1"});
  const std::uint16_t port = taken.port();
  const std::vector<Outcome> ends = train(port);
  EXPECT_EQ(ends[0].code, 2) << ends[0].err;
  EXPECT_THAT(ends[0].err, HasSubstr("ranks cannot meet at"));
  EXPECT_EQ(ends[1].code, kPeerLost) << ends[1].err;
  for (const Outcome& outcome : ends) EXPECT_EQ(count(outcome.err, "error:"), 1) << outcome.err;
  taken = Listener({.host = "127.0.0.1"});
  for (const Outcome& outcome : train(port)) EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(result(), undisturbed());
}

const std::array<std::string, 7> kPhases{"start", "rows", "step", "evaluation", "saving", "end", "agreement"};

// Every kind of fault in every phase with every number of ranks, affecting each rank in turn; then faults that involve
// several ranks.
std::vector<RankFault> lost_ranks() {
  std::vector<RankFault> all;
  for (const char* kind : {"kill", "segv", "stop", "exit"})
    for (const int ranks : {2, 3, 4})
      for (std::size_t p = 0; p < kPhases.size(); ++p)
        all.push_back({kind, kPhases[p], ranks, static_cast<int>(p + static_cast<std::size_t>(ranks)) % ranks});
  for (const int ranks : {2, 3, 4}) {
    all.push_back({"late", "step", ranks, ranks - 1});
    for (const char* phase : {"rows", "step", "evaluation"}) all.push_back({"skip", phase, ranks, ranks / 2});
    for (const char* phase : {"rows", "saving"}) all.push_back({"unequal", phase, ranks, ranks - 1});
  }
  return all;
}

std::vector<RankFault> slow_ranks() {
  std::vector<RankFault> all;
  for (const int ranks : {2, 3, 4})
    for (const char* phase : {"step", "saving"}) all.push_back({"slow", phase, ranks, ranks - 1});
  return all;
}

// A few of these for every run of the tests.
std::vector<RankFault> some_ranks() {
  return {{"kill", "saving", 3, 0},
          {"segv", "evaluation", 2, 1},
          {"stop", "step", 3, 1},
          {"exit", "end", 2, 0},
          {"unequal", "saving", 3, 2}};
}

std::vector<RankFault> other_configs() {
  std::vector<RankFault> all;
  for (const int ranks : {2, 3, 4})
    for (int rank = 1; rank < ranks; ++rank) all.push_back({"config", "start", ranks, rank});
  return all;
}

std::vector<RankFault> cut_cables() {
  std::vector<RankFault> all;
  for (const int ranks : {2, 4})
    for (const std::string& phase : kPhases) all.push_back({"hold", phase, ranks, 0});
  return all;
}

const auto name_of_fault = [](const auto& info) { return info.param.text(); };

INSTANTIATE_TEST_SUITE_P(All, LostRankOf, ::testing::ValuesIn(lost_ranks()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(Some, LostRankOf, ::testing::ValuesIn(some_ranks()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(All, StartedRanksOf, ::testing::ValuesIn(other_configs()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(All, HostsOf, ::testing::ValuesIn(cut_cables()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(All, PortOf,
                         ::testing::Values(RankFault{"port", "start", 2, 0}, RankFault{"port", "start", 4, 0}),
                         name_of_fault);
INSTANTIATE_TEST_SUITE_P(All, SlowRankOf, ::testing::ValuesIn(slow_ranks()), name_of_fault);

}  // namespace
}  // namespace qtrain::e2e
