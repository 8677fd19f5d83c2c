#include "dist/queued_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include "core/error.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;

/// Records calls; a barrier waits until it is released.
struct Recorded : Solo {
  struct State {
    std::vector<std::string> calls;
    std::latch go{1};
    bool disconnected = false;
  };
  explicit Recorded(State& s) : state(s) {}
  void barrier(Ctx&) override {
    state.go.wait();
    if (state.disconnected) fail(ErrorKind::peer, {.cause = "disconnected"});
    state.calls.emplace_back("barrier");
  }
  void all_reduce(Ctx&, Tensor, Reduction) override { state.calls.emplace_back("all_reduce"); }
  void reduce_scatter(Ctx&, ConstTensor, Tensor) override { state.calls.emplace_back("reduce_scatter"); }
  void broadcast(Ctx&, Tensor, int) override { fail(ErrorKind::peer, {.cause = "rank 1 is lost"}); }
  void disconnect() override {
    state.disconnected = true;
    state.go.count_down();
  }
  State& state;
};

TEST(QueuedCollective, WorkGoesOnBesideTheCallerInItsOrder) {
  Recorded::State state;
  QueuedCollective ranks(std::make_unique<Recorded>(state));
  Ctx ctx;
  const Pending first = ranks.start([&](Collective& c) { c.barrier(ctx); });
  EXPECT_TRUE(state.calls.empty());  // although the barrier is still waiting
  state.go.count_down();
  ranks.all_reduce(ctx, {}, Reduction::sum);
  ranks.reduce_scatter(ctx, {}, {});
  EXPECT_THAT(state.calls, ElementsAre("barrier", "all_reduce", "reduce_scatter"));
  first.wait();
}

TEST(QueuedCollective, WhatFollowsAnErrorEndsWithIt) {
  Recorded::State state;
  QueuedCollective ranks(std::make_unique<Recorded>(state));
  Ctx ctx;
  const Pending lost = ranks.start([&](Collective& c) { c.broadcast(ctx, {}, 0); });
  for (int i = 0; i < 2; ++i) EXPECT_THROW(ranks.all_reduce(ctx, {}, Reduction::sum), Error);
  EXPECT_THROW(lost.wait(), Error);
  EXPECT_TRUE(state.calls.empty());
}

// Otherwise the ranks of the part could reach it in a different order than the calls on the whole group.
TEST(QueuedPart, IsDoneAfterWhatWasBegunOnTheWhole) {
  Recorded::State whole, part;
  QueuedCollective ranks(std::make_unique<Recorded>(whole));
  QueuedPart some(ranks, std::make_unique<Recorded>(part));
  Ctx ctx;
  ranks.start([&](Collective& c) { c.barrier(ctx); });
  const Pending later = some.start([&](Collective& c) {
    EXPECT_THAT(whole.calls, ElementsAre("barrier"));
    c.all_reduce(ctx, {}, Reduction::sum);
  });
  EXPECT_TRUE(part.calls.empty());
  whole.go.count_down();
  later.wait();
  EXPECT_THAT(part.calls, ElementsAre("all_reduce"));
  some.disconnect();
  EXPECT_TRUE(part.disconnected);
}

// A rank that ends with an error of its own does not wait for pending calls.
TEST(QueuedCollective, LeavingEndsWhatIsUnderWay) {
  Recorded::State state;
  Ctx ctx;
  Pending pending;
  {
    QueuedCollective ranks(std::make_unique<Recorded>(state));
    pending = ranks.start([&](Collective& c) { c.barrier(ctx); });
  }
  EXPECT_TRUE(state.disconnected);
  EXPECT_THROW(pending.wait(), std::exception);
}

}  // namespace
}  // namespace qtrain
