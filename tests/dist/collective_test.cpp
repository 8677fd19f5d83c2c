#include "dist/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/dist/local_ranks.h"
#include "tests/dist/sum_over_ranks.h"

namespace qtrain {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <class T>
Tensor view(std::vector<T>& values) {
  return view_of(std::span(values), {static_cast<std::int64_t>(values.size())});
}

// One rank, a power of two, and numbers below and above one.
class AnyRanks : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
  void run(const test::RankWork& work) { EXPECT_THAT(test::on_ranks(size(), work), Each(IsEmpty())); }
};
INSTANTIATE_TEST_SUITE_P(Sizes, AnyRanks, ::testing::Values(1, 2, 3, 5));

template <class T>
void sums_are_exact(Ctx& ctx, Collective& ranks) {
  std::vector<T> values(1237);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(static_cast<float>(i % 7) + ranks.rank());
  ranks.all_reduce(ctx, view(values), Reduction::sum);
  const int n = ranks.size();
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(static_cast<float>(values[i]), static_cast<float>(n * static_cast<int>(i % 7) + n * (n - 1) / 2)) << i;
}

TEST_P(AnyRanks, SumsOfEveryType) {
  run([](Ctx& ctx, Collective& ranks) {
    sums_are_exact<float>(ctx, ranks);
    sums_are_exact<double>(ctx, ranks);
    sums_are_exact<Bf16>(ctx, ranks);
    sums_are_exact<F16>(ctx, ranks);
    sums_are_exact<std::int64_t>(ctx, ranks);
  });
}

TEST_P(AnyRanks, SumsHaveTheSameBitsEverywhere) {
  run([](Ctx& ctx, Collective& ranks) {
    std::vector<float> values(100003);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = 1.0F / static_cast<float>(i + 1 + 17 * static_cast<std::size_t>(ranks.rank()));
    ranks.all_reduce(ctx, view(values), Reduction::sum);
    const std::string mine(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    EXPECT_THAT(gather_texts(ctx, ranks, mine), Each(mine));
  });
}

TEST_P(AnyRanks, MaximaAreThoseOfAllRanks) {
  run([](Ctx& ctx, Collective& ranks) {
    std::vector<double> values{-5.0 - ranks.rank(), 3.0 * ranks.rank()};
    ranks.all_reduce(ctx, view(values), Reduction::max);
    EXPECT_THAT(values, ElementsAre(-5.0, 3.0 * (ranks.size() - 1)));
    EXPECT_EQ(any_rank(ctx, ranks, ranks.rank() == ranks.size() - 1), true);
    EXPECT_EQ(any_rank(ctx, ranks, false), false);
  });
}

TEST_P(AnyRanks, RowsGoWhereTheyBelong) {
  run([](Ctx& ctx, Collective& ranks) {
    const int n = ranks.size(), me = ranks.rank();
    std::vector<std::int64_t> sent, received(static_cast<std::size_t>(2 * n)), all(received.size());
    for (int r = 0; r < n; ++r) sent.insert(sent.end(), {100 * me + r, -r});
    ranks.all_to_all(ctx, view(sent), view(received));
    std::vector<std::int64_t> mine{me, 10 * me};
    ranks.all_gather(ctx, view(mine), view(all));
    for (int r = 0; r < n; ++r) {
      const auto at = static_cast<std::size_t>(2 * r);
      EXPECT_EQ(received[at], 100 * r + me);
      EXPECT_EQ(received[at + 1], -me);
      EXPECT_EQ(all[at + 1], 10 * r);
    }
  });
}

/// A different summation order gives these sums different bits.
template <class T>
T term(int rank, int row, int i) {
  return T(static_cast<float>((7919 * (rank + 1) + 104729 * row + 31 * i) % 1013) / 97.0F);
}

template <class T>
void shares_are_added_in_order(Ctx& ctx, Collective& ranks, bool in_place) {
  constexpr int kRow = 129;
  const int n = ranks.size(), me = ranks.rank();
  std::vector<T> sent, sum(kRow);
  for (int i = 0; i < n * kRow; ++i) sent.push_back(term<T>(me, i / kRow, i % kRow));
  ranks.reduce_scatter(ctx, view(sent), in_place ? view(sent).slice(me * kRow, kRow) : view(sum));
  if (in_place) std::copy_n(sent.begin() + me * kRow, kRow, sum.begin());
  for (int i = 0; i < kRow; ++i) {
    T expected = term<T>(0, me, i);
    for (int r = 1; r < n; ++r) expected = T(static_cast<float>(expected) + static_cast<float>(term<T>(r, me, i)));
    ASSERT_EQ(static_cast<float>(sum[static_cast<std::size_t>(i)]), static_cast<float>(expected)) << i;
  }
}

TEST_P(AnyRanks, SharesOfSumsAreAddedInTheOrderOfTheRanks) {
  run([](Ctx& ctx, Collective& ranks) {
    for (const bool in_place : {false, true}) {
      shares_are_added_in_order<float>(ctx, ranks, in_place);
      shares_are_added_in_order<Bf16>(ctx, ranks, in_place);
      shares_are_added_in_order<F16>(ctx, ranks, in_place);
    }
  });
}

TEST_P(AnyRanks, TextsOfAnyLength) {
  run([](Ctx& ctx, Collective& ranks) {
    const auto text_of = [](int rank) { return std::string(static_cast<std::size_t>(rank) * 3, 'x'); };
    const std::vector<std::string> all = gather_texts(ctx, ranks, text_of(ranks.rank()));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks.size()));
    for (int r = 0; r < ranks.size(); ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], text_of(r));
    const int last = ranks.size() - 1;
    EXPECT_EQ(broadcast_text(ctx, ranks, text_of(ranks.rank()), last), text_of(last));
    EXPECT_EQ(test::sum_over_ranks(ctx, ranks, ranks.rank()), last * (last + 1) / 2.0);
  });
}

TEST(Solo, KeepsWhatItHas) {
  Solo ranks;
  Ctx ctx({}, MatmulPrecision::storage, 1);
  std::vector<float> mine{1, 2}, other(2);
  ranks.all_reduce(ctx, view(mine), Reduction::sum);
  ranks.all_to_all(ctx, view(mine), view(other));
  EXPECT_THAT(other, ElementsAre(1, 2));
  mine = {5, 6};
  ranks.reduce_scatter(ctx, view(mine), view(other));
  EXPECT_THAT(other, ElementsAre(5, 6));
  mine = {3, 4};
  ranks.all_gather(ctx, view(mine), view(other));
  EXPECT_THAT(other, ElementsAre(3, 4));
  EXPECT_EQ(broadcast_text(ctx, ranks, "a"), "a");
}

// Each pair has its own sums, even while other pairs use theirs and all ranks use the whole group.
TEST(CollectivePart, IsOfItsRanksAlone) {
  const auto errors = test::on_ranks(4, [](Ctx& ctx, Collective& ranks) {
    const int first = ranks.rank() / 2 * 2;
    const auto pair = ranks.part(first, 2), again = ranks.part(first, 2), self = pair->part(ranks.rank() - first, 1);
    EXPECT_EQ(pair->size(), 2);
    EXPECT_EQ(pair->rank(), ranks.rank() - first);
    for (int i = 0; i < ranks.rank(); ++i) EXPECT_EQ(test::sum_over_ranks(ctx, *self, i), i);
    EXPECT_EQ(test::sum_over_ranks(ctx, *pair, ranks.rank()), 2 * first + 1);
    EXPECT_EQ(test::sum_over_ranks(ctx, ranks, ranks.rank()), 6);
    EXPECT_THAT(gather_texts(ctx, *again, std::to_string(ranks.rank())),
                ElementsAre(std::to_string(first), std::to_string(first + 1)));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Ranks 1, 3 and 5 of six are the second ranks of their pairs; within that group, 1 and 5 are the first and last.
TEST(CollectiveCounterparts, AreOneOfEachPart) {
  const auto errors = test::on_ranks(6, [](Ctx& ctx, Collective& ranks) {
    const int me = ranks.rank();
    const auto pair = ranks.part(me / 2 * 2, 2), replicas = ranks.counterparts(2);
    EXPECT_EQ(replicas->rank(), me / 2);
    ASSERT_EQ(replicas->size(), 3);
    EXPECT_THAT(gather_texts(ctx, *replicas, std::to_string(me)),
                ElementsAre(std::to_string(me % 2), std::to_string(me % 2 + 2), std::to_string(me % 2 + 4)));
    EXPECT_EQ(test::sum_over_ranks(ctx, *pair, test::sum_over_ranks(ctx, *replicas, me)), 15);
    EXPECT_EQ(test::sum_over_ranks(ctx, *replicas->counterparts(3), me), me);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace qtrain
