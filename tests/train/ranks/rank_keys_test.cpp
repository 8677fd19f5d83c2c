#include "train/ranks/rank_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/dist/local_ranks.h"

namespace qtrain {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr std::int64_t kCount = 3, kHeads = 2, kWidth = 5;  // tokens of a piece

template <class T>
Tensor rows_in(std::vector<T>& memory, std::int64_t tokens, T value) {
  memory.assign(static_cast<std::size_t>(tokens * kHeads * kWidth), value);
  return view_of(std::span(memory), {tokens, kHeads, kWidth});
}

/// An element of all tokens, and of the gradient on one rank; the values make every summation order give different
/// bits.
template <class T>
T value_of(int rank, std::int64_t i) {
  const auto mixed = static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(rank) * 40503U;
  return static_cast<T>(static_cast<float>(mixed >> 8U) * 0x1p-24F - 0.5F);
}

/// Calls act(element of this rank, the same element in all tokens).
template <class Act>
void each_element(const ContextShare& share, const Act& act) {
  const std::int64_t piece = kCount * kHeads * kWidth;
  for (int which = 0; which < 2; ++which)
    for (std::int64_t i = 0; i < piece; ++i) act(which * piece + i, share.piece(which) * piece + i);
}

class RankKeysOf : public ::testing::TestWithParam<int> {
 protected:
  void run(const std::function<void(Ctx&, RankKeys&, const ContextShare&)>& work) const {
    const auto errors = test::on_ranks(GetParam(), [&](Ctx& ctx, Collective& ranks) {
      RankKeys keys(ranks);
      work(ctx, keys, {.ranks = ranks.size(), .rank = ranks.rank()});
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, RankKeysOf, ::testing::Values(2, 3, 4));

TEST_P(RankKeysOf, GathersInTheOrderOfTheTokens) {
  run([](Ctx& ctx, RankKeys& keys, const ContextShare& share) {
    std::vector<float> own, everything;
    const Tensor mine = rows_in(own, 2 * kCount, 0.0F), all = rows_in(everything, 2 * kCount * share.ranks, -1.0F);
    each_element(share, [&](std::int64_t here, std::int64_t among) {
      own[static_cast<std::size_t>(here)] = static_cast<float>(among);
    });
    keys.begin_gather(ctx, mine, all);
    keys.finish_gather(ctx);
    for (std::size_t i = 0; i < everything.size(); ++i) ASSERT_EQ(everything[i], static_cast<float>(i));
  });
}

template <class T>
void adds_in_order(Ctx& ctx, RankKeys& keys, const ContextShare& share, Sink::Mode mode) {
  std::vector<T> own, everything, spare;
  const std::int64_t tokens = 2 * kCount * share.ranks;
  const Tensor mine = rows_in(own, 2 * kCount, T(0.25F)), all = rows_in(everything, tokens, T(0.0F));
  for (std::size_t i = 0; i < everything.size(); ++i)
    everything[i] = value_of<T>(share.rank, static_cast<std::int64_t>(i));
  keys.reduce(ctx, all, rows_in(spare, tokens, T(7.0F)), {mine, mode});
  each_element(share, [&](std::int64_t here, std::int64_t among) {
    T sum = value_of<T>(0, among);
    for (int r = 1; r < share.ranks; ++r) sum += value_of<T>(r, among);
    if (mode == Sink::Mode::accumulate) sum += T(0.25F);
    ASSERT_EQ(own[static_cast<std::size_t>(here)], sum) << here;
  });
}

TEST_P(RankKeysOf, AddsGradientsInOrder) {
  run([](Ctx& ctx, RankKeys& keys, const ContextShare& share) {
    for (const Sink::Mode mode : {Sink::Mode::store, Sink::Mode::accumulate}) {
      adds_in_order<float>(ctx, keys, share, mode);
      adds_in_order<double>(ctx, keys, share, mode);
    }
  });
}

// The time includes waiting for a late rank, but the late rank itself does not wait.
TEST(RankKeys, CountsTheTimeThatItWaits) {
  constexpr auto kLate = std::chrono::milliseconds(400);
  const auto errors = test::on_ranks(2, [&](Ctx& ctx, Collective& ranks) {
    RankKeys keys(ranks);
    std::vector<float> own, everything;
    const Tensor mine = rows_in(own, 2 * kCount, 1.0F), all = rows_in(everything, 4 * kCount, 0.0F);
    const auto gather = [&] {
      keys.begin_gather(ctx, mine, all);
      keys.finish_gather(ctx);
    };
    gather();
    const double before = keys.seconds();
    if (ranks.rank() == 1) std::this_thread::sleep_for(kLate);
    gather();
    const double waited = keys.seconds() - before;
    EXPECT_EQ(waited > 0.3, ranks.rank() == 0) << waited;
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace qtrain
