#include "dist/guarded_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/dist/local_ranks.h"

namespace qtrain {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Tensor view(std::vector<float>& values, std::int64_t n) {
  return view_of(std::span(values).first(static_cast<std::size_t>(n)), {n});
}

TEST(GuardedCollective, TellsOfAnotherSize) {
  const auto errors = test::on_ranks(3, [](Ctx& ctx, Collective& ranks) {
    std::vector<float> values(8);
    ranks.all_reduce(ctx, view(values, ranks.rank() == 1 ? 7 : 8), Reduction::sum);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("all_reduce of 7 float32"), HasSubstr("all_reduce of 8 float32"),
                                 HasSubstr("collective 1"))));
}

TEST(GuardedCollective, TellsOfAnotherKindAndRoot) {
  const auto kinds = test::on_ranks(2, [](Ctx& ctx, Collective& ranks) {
    std::vector<float> values(8);
    if (ranks.rank() == 0) return ranks.barrier(ctx);
    ranks.all_reduce(ctx, view(values, 8), Reduction::sum);
  });
  EXPECT_THAT(kinds, Each(AllOf(HasSubstr("barrier"), HasSubstr("all_reduce of 8"))));
  const auto roots = test::on_ranks(2, [](Ctx& ctx, Collective& ranks) {
    std::vector<float> values(8);
    ranks.broadcast(ctx, view(values, 8), ranks.rank());
  });
  EXPECT_THAT(roots, Each(HasSubstr("the ranks do different things")));
}

TEST(GuardedCollective, TellsSharesOfSumsFromWholeOnes) {
  const auto errors = test::on_ranks(2, [](Ctx& ctx, Collective& ranks) {
    std::vector<float> values(8), sum(4);
    if (ranks.rank() == 0) return ranks.all_reduce(ctx, view(values, 8), Reduction::sum);
    ranks.reduce_scatter(ctx, view(values, 8), view(sum, 4));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("reduce_scatter of 8 float32"), HasSubstr("all_reduce of 8 float32"))));
}

// Sums of a call that one rank has left out are wrong and go unnoticed in gloo itself.
TEST(GuardedCollective, TellsOfACallThatWasLeftOut) {
  const auto errors = test::on_ranks(
      2,
      [](Ctx& ctx, Collective& ranks) {
        std::vector<float> values(8);
        for (int i = ranks.rank(); i < 3; ++i) ranks.all_reduce(ctx, view(values, 8), Reduction::sum);
      },
      std::chrono::seconds(3));
  EXPECT_THAT(errors[0], HasSubstr("rank 1 did not come to collective 3"));
  EXPECT_THAT(errors[1], IsEmpty());
}

TEST(GuardedCollective, PartsNameTheRanksOfTheRun) {
  const auto errors = test::on_ranks(4, [](Ctx& ctx, Collective& ranks) {
    const auto pair = ranks.part(ranks.rank() / 2 * 2, 2);
    std::vector<float> values(8);
    pair->all_reduce(ctx, view(values, ranks.rank() == 3 ? 7 : 8), Reduction::sum);
  });
  for (const std::size_t r : {0U, 1U}) EXPECT_THAT(errors[r], IsEmpty());
  for (const std::size_t r : {2U, 3U})
    EXPECT_THAT(errors[r], AllOf(HasSubstr("rank 2"), HasSubstr("rank 3"), Not(HasSubstr("rank 1"))));
}

TEST(GuardedCollective, NamesTheRankThatIsGone) {
  const auto errors = test::on_ranks(4, [](Ctx& ctx, Collective& ranks) {
    ranks.barrier(ctx);
    if (ranks.rank() == 2) return;
    ranks.barrier(ctx);
  });
  for (const int r : {0, 1, 3})
    EXPECT_THAT(errors[static_cast<std::size_t>(r)], HasSubstr("rank 2 did not come to collective 2, barrier"));
}

TEST(GuardedCollective, NamesTheRankThatIsSilent) {
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = test::on_ranks(
      3,
      [](Ctx& ctx, Collective& ranks) {
        ranks.barrier(ctx);
        if (ranks.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(6));
        ranks.barrier(ctx);
      },
      std::chrono::seconds(1));
  for (const int r : {0, 2})
    EXPECT_THAT(errors[static_cast<std::size_t>(r)],
                HasSubstr("rank 1 did not come to collective 2, barrier: it still computes"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace qtrain
