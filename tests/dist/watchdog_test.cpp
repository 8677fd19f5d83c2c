#include "dist/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "core/os/stop.h"
#include "tests/dist/meetings.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using test::kEnough;

class Watchdogs : public ::testing::Test {
 protected:
  void TearDown() override { set_stop_requested(false); }
  Meeting meeting() const { return test::meeting_at(server_.port()); }
  std::unique_ptr<Watchdog> of_rank(int rank) const {
    return std::make_unique<Watchdog>(Watchdog::Options{.meeting = meeting(),
                                                        .rank = rank,
                                                        .ranks = 2,
                                                        .check_after = milliseconds(200),
                                                        .stop_patience = milliseconds(200)});
  }
  void lose_a_rank() const { Store(meeting(), kEnough).set("stays/2", ""); }
  static RankWait wait(std::int64_t number) {
    return {
        .size = 2, .number = number, .sequence = static_cast<std::uint64_t>(number), .before = {99}, .call = "barrier"};
  }
  static bool comes(const std::atomic<bool>& flag, milliseconds within) {
    for (const auto end = std::chrono::steady_clock::now() + within; !flag && std::chrono::steady_clock::now() < end;)
      std::this_thread::sleep_for(milliseconds(5));
    return flag;
  }
  StoreServer server_{test::free_meeting()};
  std::atomic<bool> given_up_ = false;
};

TEST_F(Watchdogs, TellWhatRanksDoAgainAndAgain) {
  const auto zero = of_rank(0), one = of_rank(1);
  Store store(meeting(), kEnough);
  one->enter(wait(1), {});
  EXPECT_THAT(one->ask_all(store).busy, ElementsAre(0));
  one->leave("");
  zero->enter(wait(1), {});
  EXPECT_THAT(zero->ask_all(store).busy, ElementsAre(1));
  one->announce_failure(store);
  const Watchdog::Report report = zero->ask_all(store);
  EXPECT_THAT(report.failed, ElementsAre(1));
  EXPECT_THAT(report.busy, IsEmpty());
  EXPECT_THAT(report.verdict, IsEmpty());
}

TEST_F(Watchdogs, WaitsInDifferentCallsAreGivenUp) {
  const auto zero = of_rank(0), one = of_rank(1);
  Store store(meeting(), kEnough);
  one->enter(wait(2), {});
  zero->enter(wait(1), [this] { given_up_ = true; });
  EXPECT_TRUE(comes(given_up_, kEnough));
  EXPECT_THAT(one->ask_all(store).verdict, HasSubstr("rank 1 waits in collective 2, barrier"));
}

// While a wait is given up, the callback may wait for another thread that waits on a device.
TEST_F(Watchdogs, DevicesMayWaitWhileAWaitIsGivenUp) {
  std::promise<bool> told;
  std::future<void> device;
  const auto zero = of_rank(0);
  zero->enter(wait(1), [&] {
    if (device.valid()) return;
    device = std::async(std::launch::async, [&] { zero->wait_on_device("a call"); });
    told.set_value(device.wait_for(kEnough) == std::future_status::ready);
  });
  lose_a_rank();
  EXPECT_TRUE(told.get_future().get());
}

TEST_F(Watchdogs, WaitsForOneThatComputesAreNot) {
  const auto zero = of_rank(0), one = of_rank(1);
  zero->enter(wait(1), [this] { given_up_ = true; });
  set_stop_requested(true);  // it would notice this after its step
  EXPECT_FALSE(comes(given_up_, milliseconds(2000)));
}

TEST_F(Watchdogs, HearOfRanksThatEndBeforeAllIsDone) {
  const auto zero = of_rank(0);
  auto one = of_rank(1);
  Store store(meeting(), kEnough);
  while (!store.get("stays/1", kEnough)) continue;
  const auto misses = [&] {
    std::this_thread::sleep_for(milliseconds(500));
    return zero->misses_rank();
  };
  one->announce_end(store);
  one.reset();
  EXPECT_FALSE(misses());
  { const Store of_another(meeting(), kEnough); }
  EXPECT_FALSE(misses());
  lose_a_rank();
  EXPECT_TRUE(misses());
}

TEST_F(Watchdogs, AWaitForOneThatIsGoneEndsOnceAStopIsAskedFor) {
  const auto zero = of_rank(0);
  zero->enter(wait(1), [this] { given_up_ = true; });
  EXPECT_FALSE(comes(given_up_, milliseconds(1000)));
  set_stop_requested(true);
  EXPECT_TRUE(comes(given_up_, kEnough));
  Store store(meeting(), kEnough);
  EXPECT_THAT(zero->ask_all(store).verdict, HasSubstr("rank 1 gives no sign of life"));
}

}  // namespace
}  // namespace qtrain
