#include "app/serve/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace qtrain::serve {
namespace {

using std::chrono::milliseconds;

TEST(Turns, OnlySoManyAtATime) {
  Turns turns(2);
  std::atomic<int> now = 0, done = 0, most = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      const auto turn = turns.wait([] {}, milliseconds(1000));
      const int there = ++now;
      for (int seen = most; seen < there && !most.compare_exchange_weak(seen, there);) continue;
      std::this_thread::sleep_for(milliseconds(10));
      --now;
      ++done;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 8);
  EXPECT_EQ(most, 2);
}

TEST(Turns, WhoWaitsMayGiveUp) {
  Turns turns(1);
  {
    const auto first = turns.wait([] {}, milliseconds(5));
    int checks = 0;
    const auto check = [&] {
      if (++checks == 3) throw std::runtime_error("enough");
    };
    EXPECT_THROW(turns.wait(check, milliseconds(5)), std::runtime_error);
    EXPECT_EQ(checks, 3);
  }
  EXPECT_NO_THROW(turns.wait([] {}, milliseconds(5))) << "the one that gave up has taken no turn";
}

}  // namespace
}  // namespace qtrain::serve
