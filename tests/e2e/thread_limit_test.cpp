// Runs of several ranks whose user may start only a few processes and threads.
#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <list>

#include "tests/e2e/started_ranks.h"

namespace qtrain::e2e {
namespace {

using ::testing::AnyOf;

constexpr int kMemory = 4;

class FewThreads : public StartedRanks {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become a user without other processes";
    ::chmod(folder_.path().c_str(), 0777);
  }
  /// A run of two ranks, with an output folder of its own for each limit.
  Json config(int limit) const {
    Json config = divided(base(), 2);
    const std::string out = at(fmt::format("out{}", limit)).string();
    config.update({{"max_steps", 1}, {"ddp_timeout", 30}, {"token_cache_dir", ""}, {"output_dir", out}});
    return config;
  }
  /// The same launch by a user who has no other processes; root has no limit.
  Launch limited(Launch launch, int limit) const {
    constexpr int kFirst = 1'000'000, kProcesses = 100'000, kLimits = 16;
    const int user = kFirst + ::getpid() % kProcesses * kLimits + limit;
    launch.environment.push_back("XDG_CACHE_HOME=" + at(fmt::format("caches{}", limit)).string());
    launch.argv.insert(launch.argv.begin(), {"/usr/bin/setpriv", fmt::format("--reuid={}", user), "--clear-groups",
                                             "/usr/bin/prlimit", fmt::format("--nproc={}", limit)});
    return launch;
  }
};

// Wherever the limit is reached, the run names it and ends soon.
TEST_F(FewThreads, AreNamedAndNotWaitedFor) {
  std::list<Process> runs;
  for (const int limit : {1, 6, 10}) {
    const fs::path file = at(fmt::format("run{}.json", limit));
    write_file(file, dump_json(config(limit)));
    runs.emplace_back(limited(launch_of({.words = {file.string()}}), limit));
  }
  const auto begin = std::chrono::steady_clock::now();
  for (Process& run : runs) {
    const Outcome outcome = run.wait();
    EXPECT_THAT(outcome.code, AnyOf(0, kMemory)) << outcome.err;
    EXPECT_TRUE(outcome.code == 0 || outcome.err.find("cannot start a thread") != std::string::npos) << outcome.err;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(90));
}

// Rank 0 itself serves the others here, which also wait for it: it has no thread left for the first or second client.
TEST_F(FewThreads, OfRankZeroAreNamedBeforeTheTimeout) {
  std::list<Process> ranks;
  for (const int limit : {3, 4}) {
    Json alone = config(limit);
    alone["ddp_timeout"] = 100;
    alone.erase("nproc");
    Launch zero = rank(0, 2, alone);
    zero.environment.back() = fmt::format("MASTER_PORT={}", Listener({.host = "127.0.0.1"}).port());
    ranks.emplace_back(limited(zero, limit));
  }
  const auto begin = std::chrono::steady_clock::now();
  for (Process& zero : ranks) {
    const Outcome outcome = zero.wait();
    EXPECT_EQ(outcome.code, kMemory) << outcome.err;
    EXPECT_THAT(outcome.err, ::testing::HasSubstr("cannot start a thread"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

}  // namespace
}  // namespace qtrain::e2e
