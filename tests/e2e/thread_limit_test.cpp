// Runs of several ranks whose user may start only a few processes and threads.
#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>

#include "tests/e2e/ranks.h"

namespace qtrain::e2e {
namespace {

using ::testing::AnyOf;

class FewThreads : public Ranks {};

// Wherever the limit is reached, the run names it and ends soon.
TEST_F(FewThreads, AreNamedAndNotWaitedFor) {
  constexpr int kUser = 987'654;  // without other processes; root has no limit
  constexpr int kMemory = 4;
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become a user without other processes";
  ::chmod(folder_.path().c_str(), 0777);
  Json config = divided(base(), 2);
  config.update({{"max_steps", 1}, {"ddp_timeout", 6}, {"token_cache_dir", ""}});
  Launch launch = launch_of({.words = words(config)});
  launch.environment = {"XDG_CACHE_HOME=" + at("caches").string()};
  const std::vector<std::string> plain = launch.argv;
  for (const int limit : {1, 6, 10}) {
    SCOPED_TRACE(limit);
    launch.argv = {"/usr/bin/setpriv", fmt::format("--reuid={}", kUser), "--clear-groups", "/usr/bin/prlimit",
                   fmt::format("--nproc={}", limit)};
    launch.argv.insert(launch.argv.end(), plain.begin(), plain.end());
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = Process(launch).wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
    EXPECT_THAT(outcome.code, AnyOf(0, kMemory)) << outcome.err;
    EXPECT_TRUE(outcome.code == 0 || outcome.err.find("cannot start a thread") != std::string::npos) << outcome.err;
    fs::remove_all(at("out"));
  }
}

}  // namespace
}  // namespace qtrain::e2e
