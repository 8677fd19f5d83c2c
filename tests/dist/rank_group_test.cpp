#include "dist/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

// It has said where it listens, and is gone.
TEST(RankGroup, NamesARankThatIsLostWhileAllMeet) {
  constexpr std::chrono::seconds kEnough{20};
  StoreServer server({.host = "127.0.0.1"});
  const Endpoint meeting{.host = "127.0.0.1", .port = server.port()};
  auto error = std::async(std::launch::async, [&] {
    return test::error_of(ErrorKind::peer,
                          [&] { RankGroup(RankPlace{.size = 2, .store = meeting}, {.timeout = kEnough}); });
  });
  Store one(meeting, kEnough);
  one.set("gloo/1", *one.get("gloo/0", kEnough));
  EXPECT_THAT(error.get(), HasSubstr("rank 1 did not come to the meeting of all ranks: there is no sign of life"));
}

}  // namespace
}  // namespace qtrain
