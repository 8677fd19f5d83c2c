#include "core/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <future>

#include "core/stop.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

class UnreadResult : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::pipe2(ends_.data(), O_NONBLOCK), 0);
    const std::array<char, 4096> page{};
    while (::write(ends_[1], page.data(), page.size()) > 0) {
    }
    ::fcntl(ends_[1], F_SETFL, 0);
    people_ = open_memstream(&text_, &size_), result_ = ::fdopen(ends_[1], "w");
    log_.emplace(LogLevel::info, Log::Sinks{.people = people_, .result = result_});
  }
  void TearDown() override {
    log_.reset();
    std::fclose(people_), std::fclose(result_);
    std::free(text_);
    ::close(ends_[0]);
  }
  std::string said() {
    std::fflush(people_);
    return std::string(text_, size_);
  }

  std::array<int, 2> ends_{};
  std::optional<Log> log_;

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE *people_ = nullptr, *result_ = nullptr;
};

TEST_F(UnreadResult, DoesNotHoldMessagesUp) {
  const auto blocked = std::async(std::launch::async, [&] { log_->result("nobody reads this yet"); });
  EXPECT_EQ(blocked.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  const auto warned = std::async(std::launch::async, [&] { log_->warn("stopping"); });
  EXPECT_EQ(warned.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  std::array<char, 4096> read{};
  while (blocked.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready)
    while (::read(ends_[0], read.data(), read.size()) > 0) {
    }
  EXPECT_EQ(said(), "warning: stopping\n");
}

// Whoever asked may have done so before the wait, which no signal ends then.
TEST_F(UnreadResult, EndsWithTheStopThatWasAskedForBefore) {
  set_stop_requested(true);
  auto stopped = std::async(std::launch::async, [&] {
    return test::error_of(ErrorKind::stopped, [&] { log_->result("nobody reads this"); });
  });
  const std::future_status status = stopped.wait_for(std::chrono::seconds(5));
  set_stop_requested(false);
  EXPECT_EQ(status, std::future_status::ready);
  ::close(ends_[0]);  // else the test would wait as well
  EXPECT_THAT(stopped.get(), ::testing::HasSubstr("stopped by a signal"));
  ends_[0] = -1;
}

}  // namespace
}  // namespace qtrain
