#include "dist/nccl_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "core/transfer.h"
#include "kernels/elementwise.h"
#include "tests/dist/rank_processes.h"
#include "tests/dist/sum_over_ranks.h"

namespace qtrain {
namespace {

using test::RankEnd;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;

const auto kWell = Each(AllOf(Field(&RankEnd::error, ""), Field(&RankEnd::killed, false)));

template <class T>
struct OnDevice {
  OnDevice(Ctx& ctx, const std::vector<T>& values)
      : memory(ctx.device(), values.size() * sizeof(T)),
        tensor{memory.data(), dtype_of<T>, {static_cast<std::int64_t>(values.size())}, ctx.device()} {
    ctx.stream().copy(tensor.data, values.data(), tensor.bytes());
  }
  std::vector<T> read(Ctx& ctx) const {
    std::vector<T> values(static_cast<std::size_t>(tensor.numel()));
    ctx.stream().copy(values.data(), tensor.data, tensor.bytes());
    ctx.synchronize();
    return values;
  }
  DeviceMemory memory;
  Tensor tensor;
};

class NcclRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string problem = test::rank_processes_problem(); !problem.empty()) GTEST_SKIP() << problem;
  }
};

template <class T>
void sums_are_exact(Ctx& ctx, Collective& ranks) {
  std::vector<T> mine(40001);  // more than any library sends in one message
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<T>(static_cast<float>(i % 7) + ranks.rank());
  const OnDevice<T> values(ctx, mine);
  ranks.all_reduce(ctx, values.tensor, Reduction::sum);
  const std::vector<T> sums = values.read(ctx);
  const int n = ranks.size();
  for (std::size_t i = 0; i < sums.size(); ++i)
    ASSERT_EQ(static_cast<float>(sums[i]), static_cast<float>(n * static_cast<int>(i % 7) + n * (n - 1) / 2)) << i;
}

TEST_F(NcclRanks, SumsOfEveryType) {
  EXPECT_THAT(test::on_processes({.size = 3},
                                 [](Ctx& ctx, Collective& ranks) {
                                   sums_are_exact<float>(ctx, ranks);
                                   sums_are_exact<double>(ctx, ranks);
                                   sums_are_exact<Bf16>(ctx, ranks);
                                   sums_are_exact<F16>(ctx, ranks);
                                   sums_are_exact<std::int64_t>(ctx, ranks);
                                   const OnDevice<float> values(ctx, {-5.0F - ranks.rank(), 3.0F * ranks.rank()});
                                   ranks.all_reduce(ctx, values.tensor, Reduction::max);
                                   EXPECT_THAT(values.read(ctx), ::testing::ElementsAre(-5.0F, 6.0F));
                                 }),
              kWell);
}

TEST_F(NcclRanks, RowsGoWhereTheyBelong) {
  EXPECT_THAT(test::on_processes({.size = 3},
                                 [](Ctx& ctx, Collective& ranks) {
                                   const int n = ranks.size(), me = ranks.rank();
                                   std::vector<std::int64_t> rows;
                                   for (int r = 0; r < n; ++r) rows.insert(rows.end(), {100 * me + r, -r});
                                   const OnDevice<std::int64_t> sent(ctx, rows), received(ctx, rows), all(ctx, rows),
                                       mine(ctx, {me, 10 * me}), root(ctx, {me + 7});
                                   ranks.all_to_all(ctx, sent.tensor, received.tensor);
                                   ranks.all_gather(ctx, mine.tensor, all.tensor);
                                   ranks.broadcast(ctx, root.tensor, 2);
                                   const auto got = received.read(ctx), gathered = all.read(ctx);
                                   for (int r = 0; r < n; ++r) {
                                     const auto at = static_cast<std::size_t>(2 * r);
                                     EXPECT_EQ(got[at], 100 * r + me);
                                     EXPECT_EQ(got[at + 1], -me);
                                     EXPECT_EQ(gathered[at], r);
                                     EXPECT_EQ(gathered[at + 1], 10 * r);
                                   }
                                   EXPECT_EQ(root.read(ctx)[0], 9);
                                 }),
              kWell);
}

template <class T>
void shares_are_exact(Ctx& ctx, Collective& ranks) {
  constexpr int kRow = 20001;
  const int n = ranks.size(), me = ranks.rank();
  std::vector<T> mine;
  for (int i = 0; i < n * kRow; ++i)
    mine.push_back(static_cast<T>(static_cast<float>(i / kRow + i % kRow % 5 + 3 * me)));
  const OnDevice<T> sent(ctx, mine), sum(ctx, std::vector<T>(kRow));
  ranks.reduce_scatter(ctx, sent.tensor, sum.tensor);
  const std::vector<T> share = sum.read(ctx);
  ranks.reduce_scatter(ctx, sent.tensor, sent.tensor.slice(me * kRow, kRow));
  const std::vector<T> in_place = sent.read(ctx);
  for (int i = 0; i < kRow; ++i) {
    ASSERT_EQ(static_cast<float>(share[static_cast<std::size_t>(i)]),
              static_cast<float>(n * (me + i % 5) + 3 * n * (n - 1) / 2))
        << i;
    ASSERT_EQ(static_cast<float>(in_place[static_cast<std::size_t>(me * kRow + i)]),
              static_cast<float>(share[static_cast<std::size_t>(i)]))
        << i;
  }
}

TEST_F(NcclRanks, SharesOfSumsOfEveryType) {
  EXPECT_THAT(test::on_processes({.size = 3},
                                 [](Ctx& ctx, Collective& ranks) {
                                   shares_are_exact<float>(ctx, ranks);
                                   shares_are_exact<Bf16>(ctx, ranks);
                                   shares_are_exact<F16>(ctx, ranks);
                                 }),
              kWell);
}

TEST_F(NcclRanks, TakeNoMemoryOnceTheyAreConnected) {
  if (!cuda_is_emulated()) GTEST_SKIP() << "others use a GPU too";
  EXPECT_THAT(test::on_processes({},
                                 [](Ctx& ctx, Collective& ranks) {
                                   const OnDevice<float> sent(ctx, std::vector<float>(64)),
                                       got(ctx, std::vector<float>(64));
                                   const auto left = [&] { return cuda_info(ctx.device().index).free_bytes; };
                                   const std::size_t before = left();
                                   ranks.all_reduce(ctx, sent.tensor, Reduction::sum);
                                   ranks.broadcast(ctx, sent.tensor, 0);
                                   ranks.all_to_all(ctx, sent.tensor, got.tensor);
                                   ranks.all_gather(ctx, sent.tensor.slice(0, 32), got.tensor);
                                   ranks.reduce_scatter(ctx, sent.tensor, got.tensor.slice(0, 32));
                                   ctx.synchronize();
                                   EXPECT_EQ(left(), before);
                                 }),
              kWell);
}

// There are no waits in between: earlier work writes what a call reads, and later work reads its result.
TEST_F(NcclRanks, CallsAreInTheOrderOfTheStream) {
  EXPECT_THAT(test::on_processes({},
                                 [](Ctx& ctx, Collective& ranks) {
                                   const OnDevice<float> a(ctx, std::vector<float>(1000)), b(ctx, {1});
                                   for (int i = 0; i < 4; ++i) {
                                     ops::fill(ctx, {.y = a.tensor, .value = 1.0 + i});
                                     ranks.all_reduce(ctx, a.tensor, Reduction::sum);
                                     ops::add(ctx, {.y = b.tensor, .a = b.tensor, .b = a.tensor.slice(999, 1)});
                                     EXPECT_EQ(test::sum_over_ranks(ctx, ranks, 1), 2);  // between the hosts
                                   }
                                   EXPECT_EQ(b.read(ctx)[0], 1 + 2 * (1 + 2 + 3 + 4));
                                 }),
              kWell);
}

// Parts of parts, including parts of one rank; operations on all ranks are interleaved in stream order.
TEST_F(NcclRanks, PartsAreCollectivesOfTheirOwn) {
  EXPECT_THAT(
      test::on_processes({.size = 4},
                         [](Ctx& ctx, Collective& ranks) {
                           const int me = ranks.rank();
                           const int first = me < 3 ? 0 : 3;
                           const auto part = ranks.part(first, me < 3 ? 3 : 1);
                           const auto pair = me < 3 ? part->part(me < 2 ? 0 : 2, me < 2 ? 2 : 1) : nullptr;
                           const OnDevice<float> mine(ctx, {1.0F + me}), all(ctx, std::vector<float>(3)),
                               sum(ctx, {1.0F + me}), of_pair(ctx, {1.0F + me});
                           EXPECT_EQ(part->rank(), me - first);
                           if (me < 3) part->all_gather(ctx, mine.tensor, all.tensor);
                           if (pair) pair->all_reduce(ctx, of_pair.tensor, Reduction::sum);
                           ranks.all_reduce(ctx, sum.tensor, Reduction::sum);
                           part->all_reduce(ctx, sum.tensor, Reduction::sum);  // adds the total of each rank
                           EXPECT_EQ(test::sum_over_ranks(ctx, *part, 1.0 + me), me < 3 ? 6 : 4);
                           EXPECT_EQ(sum.read(ctx)[0], me < 3 ? 30 : 10);
                           const std::vector<float> gathered = me < 3 ? all.read(ctx) : std::vector<float>{1, 2, 3};
                           EXPECT_THAT(gathered, ::testing::ElementsAre(1, 2, 3));
                           EXPECT_EQ(of_pair.read(ctx)[0], me < 2 ? 3 : 1.0F + me);
                         }),
      kWell);
}

// The error comes before the ranks agree on anything that was computed with the difference.
TEST_F(NcclRanks, ADifferenceIsToldAtTheNextCallBetweenHosts) {
  const auto ends = test::on_processes({}, [](Ctx& ctx, Collective& ranks) {
    const OnDevice<float> values(ctx, std::vector<float>(8));
    ranks.all_reduce(ctx, values.tensor.slice(0, 7 + ranks.rank()), Reduction::sum);
    ranks.barrier(ctx);
  });
  EXPECT_THAT(ends, Each(Field(&RankEnd::error, HasSubstr("the ranks make different calls: rank 1 waits in "
                                                          "collective 2, barrier, after different calls"))));
}

TEST_F(NcclRanks, ARankThatIsGoneIsNamed) {
  const auto begin = std::chrono::steady_clock::now();
  const auto ends = test::on_processes({.timeout = std::chrono::seconds(100)}, [](Ctx& ctx, Collective& ranks) {
    const OnDevice<float> values(ctx, {1});
    if (ranks.rank() == 1) ::raise(SIGKILL);
    ranks.all_reduce(ctx, values.tensor, Reduction::sum);
    ctx.synchronize();
  });
  EXPECT_THAT(ends[0].error,
              AllOf(HasSubstr("rank 1 did not reach ncclAllReduce of 1 float32"), HasSubstr("no sign of life")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));  // half of the timeout
  EXPECT_TRUE(ends[1].killed);
}

}  // namespace
}  // namespace qtrain
