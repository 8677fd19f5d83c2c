#include "core/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <future>

namespace qtrain {
namespace {

TEST(Log, MessagesDoNotWaitForTheReaderOfTheResult) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);
  const std::array<char, 4096> page{};
  while (::write(ends[1], page.data(), page.size()) > 0) {
  }
  ::fcntl(ends[1], F_SETFL, 0);
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE *people = open_memstream(&text, &size), *result = ::fdopen(ends[1], "w");
  {
    Log log(LogLevel::info, {.people = people, .result = result});
    const auto blocked = std::async(std::launch::async, [&] { log.result("nobody reads this yet"); });
    EXPECT_EQ(blocked.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
    const auto said = std::async(std::launch::async, [&] { log.warn("stopping"); });
    EXPECT_EQ(said.wait_for(std::chrono::seconds(5)), std::future_status::ready);
    std::array<char, 4096> read{};
    while (blocked.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready)
      while (::read(ends[0], read.data(), read.size()) > 0) {
      }
  }
  std::fclose(people), std::fclose(result);
  EXPECT_STREQ(text, "warning: stopping\n");
  std::free(text);
  ::close(ends[0]);
}

}  // namespace
}  // namespace qtrain
