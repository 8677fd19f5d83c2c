#include "dist/guarded_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <future>

#include "tests/dist/local_ranks.h"
#include "tests/errors.h"

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
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 waits in collective 1, all_reduce of 7 float32; rank 0 in "
                                     "collective 1, all_reduce of 8 float32")));
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
  EXPECT_THAT(roots, Each(HasSubstr("the ranks make different calls")));
  // gloo cannot distinguish these calls: each rank would get a result, but a different one.
  const auto reductions = test::on_ranks(2, [](Ctx& ctx, Collective& ranks) {
    std::vector<float> values(8);
    ranks.all_reduce(ctx, view(values, 8), ranks.rank() == 0 ? Reduction::sum : Reduction::max);
  });
  EXPECT_THAT(reductions, Each(HasSubstr("after different calls")));
}

// The last call is the same on all ranks, but the order of the previous ones differs.
TEST(GuardedCollective, TellsOfCallsThatDifferedBefore) {
  const auto errors = test::on_ranks(2, [](Ctx& ctx, Collective& ranks) {
    std::vector<float> values(8);
    if (ranks.rank() == 0) ranks.broadcast(ctx, view(values, 4), 0);  // the root of a broadcast need not wait
    ranks.broadcast(ctx, view(values, 8), 0);
    if (ranks.rank() == 1) ranks.broadcast(ctx, view(values, 4), 0);
    ranks.barrier(ctx);
  });
  EXPECT_THAT(errors, Each(HasSubstr("the ranks make different calls")));
}

/// Stands in for calls on a GPU: float32 sums are queued, and nobody waits for them.
class QueuesSums : public Collective {
 public:
  explicit QueuesSums(std::unique_ptr<Collective> host) : host_(std::move(host)) {}
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void all_reduce(Ctx&, Tensor, Reduction) override {}
  void broadcast(Ctx& ctx, Tensor values, int root) override { host_->broadcast(ctx, values, root); }
  void all_gather(Ctx& ctx, ConstTensor mine, Tensor all) override { host_->all_gather(ctx, mine, all); }
  void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) override { host_->all_to_all(ctx, sent, received); }
  void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) override { host_->reduce_scatter(ctx, sent, sum); }
  void barrier(Ctx& ctx) override { host_->barrier(ctx); }
  void label_next(std::uint32_t label) override { host_->label_next(label); }
  void disconnect() override { host_->disconnect(); }
  std::unique_ptr<Collective> part(int first, int size) override { return host_->part(first, size); }
  std::unique_ptr<Collective> counterparts(int size) override { return host_->counterparts(size); }

 private:
  std::unique_ptr<Collective> host_;
};

// The ranks agree on nothing after such calls, for example that a checkpoint is complete, before the difference is
// found.
TEST(GuardedCollective, CallsOnAGpuCountWithTheNextBetweenHosts) {
  const auto wrap = [](std::unique_ptr<Collective> host) { return std::make_unique<QueuesSums>(std::move(host)); };
  for (const std::int64_t size_of_one : {8, 7, 0}) {
    const auto work = [&](Ctx& ctx, Collective& ranks) {
      std::vector<float> values(8);
      const std::int64_t n = ranks.rank() == 1 ? size_of_one : 8;
      if (n > 0) ranks.all_reduce(ctx, view(values, n), Reduction::sum);
      ranks.barrier(ctx);
    };
    EXPECT_THAT(test::on_ranks_of(2, work, {.wrap = wrap}),
                Each(size_of_one == 8 ? ::testing::Matcher<std::string>(IsEmpty())
                                      : ::testing::Matcher<std::string>(HasSubstr("the ranks make different calls"))));
  }
}

TEST(GuardedCollective, ALateRankDoesNothingElse) {
  const auto errors = test::on_ranks(3, [](Ctx& ctx, Collective& ranks) {
    std::vector<float> values(8);
    ranks.broadcast(ctx, view(values, 8), 0);
    if (ranks.rank() == 2) std::this_thread::sleep_for(std::chrono::seconds(3));  // several looks
    ranks.broadcast(ctx, view(values, 8), 0);
    ranks.all_reduce(ctx, view(values, 8), Reduction::sum);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(GuardedCollective, TellsSharesOfSumsFromWholeOnes) {
  const auto errors = test::on_ranks(2, [](Ctx& ctx, Collective& ranks) {
    std::vector<float> values(8), sum(4);
    if (ranks.rank() == 0) return ranks.all_reduce(ctx, view(values, 8), Reduction::sum);
    ranks.reduce_scatter(ctx, view(values, 8), view(sum, 4));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("reduce_scatter of 8 float32"), HasSubstr("all_reduce of 8 float32"))));
}

// If one rank skips a call, gloo itself adds the wrong values without an error.
TEST(GuardedCollective, TellsOfACallThatWasLeftOut) {
  const auto errors = test::on_ranks(
      2,
      [](Ctx& ctx, Collective& ranks) {
        std::vector<float> values(8);
        for (int i = ranks.rank(); i < 3; ++i) ranks.all_reduce(ctx, view(values, 8), Reduction::sum);
      },
      std::chrono::seconds(3));
  EXPECT_THAT(errors[0], HasSubstr("rank 1 did not reach collective 3"));
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

// The failure is reported although no rank is computing any more.
TEST(GuardedCollective, AMeetingMayFailOnAllRanks) {
  StoreServer server(test::free_meeting());
  const Meeting meeting = test::meeting_at(server.port());
  Watchdog zero({.meeting = meeting, .rank = 0, .ranks = 2}), one({.meeting = meeting, .rank = 1, .ranks = 2});
  std::barrier all_are_there(2);
  const auto error_of = [&](Watchdog& watchdog) {
    Store store(meeting, std::chrono::seconds(20));
    return test::error_of(ErrorKind::peer, [&] {
      GuardedCollective::connected({store, watchdog}, 2, [&]() -> std::unique_ptr<Collective> {
        all_are_there.arrive_and_wait();
        throw std::runtime_error("no network");
      });
    });
  };
  auto other = std::async(std::launch::async, [&] { return error_of(one); });
  for (const std::string& error : {error_of(zero), other.get()})
    EXPECT_THAT(error, HasSubstr("the meeting of all ranks failed on all ranks: no network\n  run the same command"));
}

TEST(GuardedCollective, NamesTheRankThatIsGone) {
  std::atomic<int> come_to_the_second = 0;
  const auto errors = test::on_ranks(4, [&](Ctx& ctx, Collective& ranks) {
    ranks.barrier(ctx);
    if (ranks.rank() == 2) {  // ranks that are still in the first barrier must not fail too
      for (int i = 0; i < 100 && come_to_the_second < 3; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ++come_to_the_second;
    ranks.barrier(ctx);
  });
  for (const int r : {0, 1, 3})
    EXPECT_THAT(errors[static_cast<std::size_t>(r)], HasSubstr("rank 2 did not reach collective 2, barrier"));
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
                HasSubstr("rank 1 did not reach collective 2, barrier, but is still computing"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace qtrain
