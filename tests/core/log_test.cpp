#include "core/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <future>

#include "core/os/stop.h"
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
  std::FILE *people_ = nullptr, *result_ = nullptr;
  std::optional<Log> log_;

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
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

// The stop may have been requested before the wait, so that no signal interrupts it.
TEST_F(UnreadResult, EndsWithTheStopThatWasAskedForBefore) {
  set_stop_requested(true);
  auto stopped = std::async(std::launch::async, [&] {
    return test::error_of(ErrorKind::stopped, [&] { log_->result("nobody reads this"); });
  });
  const std::future_status status = stopped.wait_for(std::chrono::seconds(5));
  set_stop_requested(false);
  EXPECT_EQ(status, std::future_status::ready);
  ::close(ends_[0]);  // otherwise the test would wait too
  EXPECT_THAT(stopped.get(), ::testing::HasSubstr("stopped by a signal"));
  ends_[0] = -1;
}

TEST_F(UnreadResult, MessagesDoNotWaitAfterAStop) {
  Log log(LogLevel::info, {.people = result_, .result = people_});
  auto saving = std::async(std::launch::async, [&] {
    for (const char* text : {"step 1", "saving", "saved"}) log.info("{}", text);
  });
  const std::future_status before = saving.wait_for(std::chrono::milliseconds(200));
  set_stop_requested(true);
  const std::future_status after = saving.wait_for(std::chrono::seconds(5));
  set_stop_requested(false);
  ::close(ends_[0]);  // otherwise the test would wait too
  ends_[0] = -1;
  saving.wait();
  EXPECT_EQ(before, std::future_status::timeout);
  EXPECT_EQ(after, std::future_status::ready);
}

/// A log in memory.
class HostileTexts : public ::testing::Test {
 protected:
  static constexpr const char* kHostile = "\x1b[31m\xe2\x80\xae\xff https://u:p@host";
  static constexpr const char* kHarmless = "\\x1b[31m\\u202e\\xff https://<redacted>@host";

  // The text that `say` makes the log write for people, and as results.
  template <class Say>
  static std::pair<std::string, std::string> said(const Say& say) {
    std::array<char*, 2> texts{};
    std::array<std::size_t, 2> sizes{};
    std::FILE *people = open_memstream(&texts[0], &sizes[0]), *result = open_memstream(&texts[1], &sizes[1]);
    {
      Log log(LogLevel::info, Log::Sinks{.people = people, .result = result});
      say(log);
    }
    std::fclose(people), std::fclose(result);
    const std::pair out(std::string(texts[0], sizes[0]), std::string(texts[1], sizes[1]));
    std::free(texts[0]), std::free(texts[1]);
    return out;
  }
};

TEST_F(HostileTexts, AreShownAsEscapesToPeople) {
  struct Case {
    const char* name;
    std::function<void(Log&)> say;
    std::string messages;
  };
  const std::string line = std::string(kHarmless) + "\n";
  for (const auto& [name, say, messages] :
       std::vector<Case>{{"info", [](Log& log) { log.info("{}", kHostile); }, line},
                         {"warn", [](Log& log) { log.warn("{}", kHostile); }, "warning: " + line},
                         {"error", [](Log& log) { log.error("{}", kHostile); }, "error: " + line},
                         {"stream", [](Log& log) { log.stream(std::string(kHostile) + "\n"); }, line},
                         {"pass_on", [](Log& log) { log.pass_on(std::string(kHostile) + "\n"); }, line}}) {
    EXPECT_EQ(said(say).first, messages) << name;
  }
}

TEST_F(HostileTexts, HaveNoLinesThatLookLikeMessages) {
  EXPECT_EQ(said([](Log& log) { log.info("saved a\nerror: x"); }).first, "saved a\n  error: x\n");
  EXPECT_EQ(said([](Log& log) { log.error("a\n  what to do"); }).first, "error: a\n  what to do\n");
}

TEST_F(HostileTexts, OfResultLinesAreShownAsEscapesToo) {
  EXPECT_EQ(said([](Log& log) { log.result(kHostile); }).second, std::string(kHarmless) + "\n");
  EXPECT_EQ(said([](Log& log) { log.result_stream(kHostile); }).second, kHostile)
      << "data, or text that the program drew";
}

TEST_F(HostileTexts, OfWarningsAreKeptAsTheyAreShown) {
  std::vector<std::string> kept;
  said([&](Log& log) {
    log.warn("{}", kHostile);
    kept = log.warnings();
  });
  EXPECT_EQ(kept, std::vector<std::string>{kHarmless});
}

}  // namespace
}  // namespace qtrain
