// The lock of an output directory, which other processes ask for.
#include "train/checkpoint/output_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>

#include <chrono>
#include <optional>
#include <thread>

#include "core/error.h"
#include "core/os/descriptor.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

TEST(OutputLock, IsHeldByOneRun) {
  const testing::TempFolder folder;
  EXPECT_FALSE(is_locked(folder.path()));
  {
    const OutputLock lock(folder.path());
    EXPECT_TRUE(is_locked(folder.path()));
    EXPECT_THAT(testing::error_of([&] { OutputLock other(folder.path()); }).text().cause,
                ::testing::HasSubstr("another run is writing"));
  }
  EXPECT_FALSE(is_locked(folder.path()));
}

// Whoever asks whether a run holds the lock shares it for a moment.
TEST(OutputLock, IsTakenAlthoughOthersAskForIt) {
  const testing::TempFolder folder;
  { const OutputLock makes_the_file(folder.path()); }
  std::optional<Descriptor> asking(std::in_place, ::open((folder / ".lock").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(asking->get(), LOCK_SH | LOCK_NB), 0);
  std::thread ends_soon([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    asking.reset();
  });
  EXPECT_NO_THROW(OutputLock lock(folder.path()));
  ends_soon.join();
}

}  // namespace
}  // namespace qtrain
