#include "dist/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>

#include "tests/dist/meetings.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

using test::kEnough;

/// Two ranks that meet, each in its own thread; returns the error of each.
class TwoRanks : public ::testing::Test {
 protected:
  std::future<std::string> meet(int rank, ErrorKind kind, const RankSettings& settings = {{"zero_stage", "0"}}) {
    return std::async(std::launch::async, [=, this] {
      return test::error_if_any(kind, [&] {
        RankGroup group(RankPlace{.rank = rank, .size = 2, .store = meeting_.at},
                        {.timeout = kEnough, .secret = test::rank_secret(), .settings = settings});
      });
    });
  }
  StoreServer server_{test::free_meeting()};
  Meeting meeting_ = test::meeting_at(server_.port());
};

// The rank has published its address and is then lost.
TEST_F(TwoRanks, NameOneThatIsLostWhileTheyMeet) {
  auto error = meet(0, ErrorKind::peer);
  {
    Store one(meeting_, kEnough);
    one.set("stays/1", "");
    one.set("settings/1", R"({"zero_stage": "0"})");
    one.set("gloo/1", "1 127.0.0.1");
    ASSERT_TRUE(one.get("gloo/0", kEnough));
  }
  EXPECT_THAT(error.get(), HasSubstr("rank 1 did not reach the meeting of all ranks: there is no sign of life"));
}

// The second process ends, and the ranks meet without it.
TEST_F(TwoRanks, NameOneThatIsStartedTwice) {
  auto zero = meet(0, ErrorKind::peer);
  Store watch(meeting_, kEnough);
  ASSERT_TRUE(watch.get("settings/0", kEnough));
  EXPECT_THAT(meet(0, ErrorKind::usage).get(),
              HasSubstr("rank 0 has been started twice: another process at 127.0.0.1 has this number"));
  EXPECT_EQ(meet(1, ErrorKind::peer).get(), "no error");
  EXPECT_EQ(zero.get(), "no error");
}

// Both report the same differences immediately.
TEST_F(TwoRanks, NameWhatTheyDoNotHaveAlike) {
  const auto begin = std::chrono::steady_clock::now();
  auto zero = meet(0, ErrorKind::usage, {{"zero_stage", "0"}, {"overlap_comm", "true"}, {"seed", "1"}});
  auto one = meet(1, ErrorKind::usage, {{"zero_stage", "3"}, {"overlap_comm", "\x1b[2J"}, {"seed", "1"}});
  const std::string said = zero.get();
  EXPECT_THAT(said, HasSubstr("rank 1 differs from rank 0 in overlap_comm (\xEF\xBF\xBD[2J, rank 0 has true), "
                              "zero_stage (3, rank 0 has 0)"));
  EXPECT_EQ(one.get(), said);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kEnough / 2);
}

TEST_F(TwoRanks, NameWhatOneOfThemDoesNotHaveAtAll) {
  auto zero = meet(0, ErrorKind::usage, {{"a", "1"}}), one = meet(1, ErrorKind::usage, {{"b", "2"}});
  EXPECT_THAT(zero.get(), HasSubstr("a (nothing, rank 0 has 1), b (2, rank 0 has nothing)"));
  EXPECT_THAT(one.get(), HasSubstr("a (nothing, rank 0 has 1)"));
}

}  // namespace
}  // namespace qtrain
