#include "dist/rank_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qtrain {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

RankWait wait(std::int64_t number, std::uint64_t sequence, const char* call) {
  return {.group = "g", .first = 4, .size = 3, .number = number, .sequence = sequence, .call = call};
}

TEST(RankWait, ComesThroughAsText) {
  const RankAnswer answer{.waits = {wait(7, ~std::uint64_t{0}, "barrier"), wait(8, 5, "\"quoted\"")},
                          .device_waits = true};
  const RankAnswer again = rank_answer_of(text_of(answer));
  EXPECT_EQ(again.waits, answer.waits);
  EXPECT_TRUE(again.device_waits);
  EXPECT_FALSE(again.computes());
  EXPECT_TRUE(rank_answer_of(text_of(RankAnswer())).computes());
  ASSERT_TRUE(again.in("g"));
  EXPECT_EQ(again.in("g")->number, 7);
  EXPECT_FALSE(again.in("h"));
}

TEST(RankWait, OneCallIsNoDifference) {
  EXPECT_THAT(different_calls({wait(1, 5, "a"), wait(1, 5, "a"), wait(1, 5, "a")}), IsEmpty());
  EXPECT_THAT(different_calls({}), IsEmpty());
}

TEST(RankWait, TheOddOneIsNamed) {
  RankWait ahead = wait(2, 6, "b");
  ahead.before = {4};
  EXPECT_EQ(different_calls({wait(1, 5, "a"), ahead, wait(1, 5, "a")}),
            "the ranks make different calls: rank 5 waits in collective 2, b; rank 4 in collective 1, a");
  EXPECT_THAT(different_calls({wait(2, 6, "a"), wait(2, 6, "a"), wait(2, 7, "a")}),
              HasSubstr("rank 6 waits in collective 2, a, after different calls; rank 4 in"));
}

// A rank that still waits for an earlier collective has made the same calls.
TEST(RankWait, WhoIsBehindMayCome) {
  RankWait ahead = wait(4, 9, "barrier");
  ahead.before = {8, 7};
  EXPECT_THAT(different_calls({wait(2, 7, "broadcast"), ahead, wait(3, 8, "all_reduce")}), IsEmpty());
  EXPECT_THAT(different_calls({wait(2, 6, "broadcast"), ahead}), HasSubstr("the ranks make different calls"));
  EXPECT_THAT(different_calls({wait(1, 6, "broadcast"), ahead}), IsEmpty()) << "the call is too old to be compared";
  EXPECT_THAT(different_calls({wait(2, 7, "broadcast"), ahead}, Behind::is_stuck),
              HasSubstr("rank 5 waits in collective 4"));
}

// Rank 5 has already received what the root sent to it, and has continued.
TEST(RankWait, WhoIsAheadIsNotToBlame) {
  const std::string text =
      different_calls({wait(1, 5, "broadcast of 4"), wait(2, 6, "barrier"), wait(1, 9, "broadcast of 5")});
  EXPECT_EQ(text,
            "the ranks make different calls: rank 6 waits in collective 1, broadcast of 5; "
            "rank 4 in collective 1, broadcast of 4");
}

}  // namespace
}  // namespace qtrain
