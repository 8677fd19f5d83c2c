#include "core/memory_reserve.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <vector>

#include "core/build.h"

namespace qtrain {
namespace {

/// Allocates when it is destroyed, as JSON values do.
struct Careless {
  ~Careless() { const std::vector<char> more(1 << 18); }
};

// Takes all memory under a limit, twice, each time with a destructor on the way that may not throw.
int run_out_twice(bool reserving) {
  const rlimit limit{std::size_t{512} << 20, std::size_t{512} << 20};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
  for (int time = 0; time < 2; ++time) {
    if (reserving) reserve_memory_for_errors();
    try {
      std::vector<std::unique_ptr<char[]>> all;
      all.reserve(1 << 20);
      const Careless ended_first;
      for (;;) all.push_back(std::make_unique<char[]>(1 << 12));
    } catch (const std::bad_alloc&) {
    }
  }
  return 0;
}

int status_of(bool reserving) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::set_terminate([] { ::_exit(3); });
    ::_exit(run_out_twice(reserving));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(MemoryReserve, IsThereForDestructorsAfterAFailedAllocation) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "sanitizers reserve more addresses than any limit";
  EXPECT_EQ(status_of(false), 3) << "without it, this ends the process";
  EXPECT_EQ(status_of(true), 0);
}

}  // namespace
}  // namespace qtrain
