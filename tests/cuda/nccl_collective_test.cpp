#include "dist/nccl_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "core/transfer.h"
#include "kernels/elementwise.h"
#include "tests/dist/rank_processes.h"

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
  std::vector<T> mine(40001);  // more than a message of any library
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

// Nothing waits in between: what a call reads was queued before it, and what reads its result after it.
TEST_F(NcclRanks, CallsAreInTheOrderOfTheStream) {
  EXPECT_THAT(test::on_processes({},
                                 [](Ctx& ctx, Collective& ranks) {
                                   const OnDevice<float> a(ctx, std::vector<float>(1000)), b(ctx, {1});
                                   for (int i = 0; i < 4; ++i) {
                                     ops::fill(ctx, {.y = a.tensor, .value = 1.0 + i});
                                     ranks.all_reduce(ctx, a.tensor, Reduction::sum);
                                     ops::add(ctx, {.y = b.tensor, .a = b.tensor, .b = a.tensor.slice(999, 1)});
                                     EXPECT_EQ(sum_over_ranks(ctx, ranks, 1), 2);  // of the hosts, meanwhile
                                   }
                                   EXPECT_EQ(b.read(ctx)[0], 1 + 2 * (1 + 2 + 3 + 4));
                                 }),
              kWell);
}

// Before anything is agreed on that was computed with it.
TEST_F(NcclRanks, ADifferenceIsToldAtTheNextCallBetweenHosts) {
  const auto ends = test::on_processes({}, [](Ctx& ctx, Collective& ranks) {
    const OnDevice<float> values(ctx, std::vector<float>(8));
    ranks.all_reduce(ctx, values.tensor.slice(0, 7 + ranks.rank()), Reduction::sum);
    ranks.barrier(ctx);
  });
  EXPECT_THAT(ends, Each(Field(&RankEnd::error, HasSubstr("the ranks do different things: rank 1 waits in its "
                                                          "collective 2, barrier, after other calls"))));
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
              AllOf(HasSubstr("rank 1 did not come to ncclAllReduce of 1 float32"), HasSubstr("no sign of life")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));  // it is not waited out
  EXPECT_TRUE(ends[1].killed);
}

}  // namespace
}  // namespace qtrain
