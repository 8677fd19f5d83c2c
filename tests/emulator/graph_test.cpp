// Captured work, and operations that are not allowed during a capture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "core/context.h"
#include "core/graph.h"
#include "core/transfer.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "tests/errors.h"

namespace qtrain::testing {
namespace {

using ::testing::HasSubstr;

constexpr Device kCuda{DeviceKind::cuda, 0};
constexpr std::int64_t kCount = 100;

/// A context, and y += x * 1 as a piece of work.
class Recorded : public ::testing::Test {
 protected:
  Recorded() {
    ctx_.stream().fill(x_.data, 0, x_.bytes());
    ctx_.stream().fill(y_.data, 0, y_.bytes());
  }

  void add() { ops::add(ctx_, {.y = y_, .a = y_, .b = x_}); }
  void set_x(float value) { ops::fill(ctx_, {.y = x_, .value = value}); }
  float y() { return HostCopy(kCuda).of(ctx_, y_).as<float>()[kCount - 1]; }
  std::string complaint(const std::function<void()>& work) {
    const auto recorded = [&] {
      add();
      work();
    };
    return test::error_of([&] { Graph(ctx_.stream(), "planted", recorded); }).what();
  }

  Ctx ctx_{kCuda, MatmulPrecision::storage, 1};
  DeviceMemory memory_{kCuda, 2048};
  Tensor x_{memory_.data(), DType::f32, {kCount}, kCuda}, y_{memory_.data() + 1024, DType::f32, {kCount}, kCuda};
};

TEST_F(Recorded, WorkRunsWhenItIsReplayedOnTheValuesOfThen) {
  const Graph graph(ctx_.stream(), "sum", [&] { add(); });
  EXPECT_EQ(y(), 0);
  for (const float value : {2.0f, 3.0f}) {
    set_x(value);
    graph.replay(ctx_.stream());
  }
  EXPECT_EQ(y(), 5);
  EXPECT_THAT(ctx_.stream().recent_launches(), HasSubstr("fill, sum"));
}

TEST_F(Recorded, SecondStreamTakesPartBetweenTwoWaits) {
  Stream other(kCuda);
  Event begun(kCuda), done(kCuda);
  const Graph graph(ctx_.stream(), "copies", [&] {
    ctx_.stream().record(begun);
    other.wait(begun);
    other.copy(y_.data, x_.data, x_.bytes());
    other.record(done);
    ctx_.stream().wait(done);
    add();
  });
  set_x(4);
  graph.replay(ctx_.stream());
  EXPECT_EQ(y(), 8);
}

TEST_F(Recorded, MistakesAreNamed) {
  DeviceMemory freed(kCuda, 16);
  PinnedMemory pinned(kCuda, 16);
  Stream other(kCuda);
  Event event(kCuda), before(kCuda);
  ctx_.stream().record(before);
  float host[4] = {};
  const struct {
    std::string complaint;
    std::function<void()> work;
  } kMistakes[] = {
      {"device memory is allocated", [] { const DeviceMemory more(kCuda, 16); }},
      {"device memory is freed", [&] { freed = {}; }},
      {"page-locked memory is allocated", [] { const PinnedMemory more(kCuda, 16); }},
      {"page-locked memory is freed", [&] { pinned = {}; }},
      {"the host waits for a stream", [&] { ctx_.synchronize(); }},
      {"the host waits for the device", [] { synchronize(kCuda); }},
      {"an event is queried", [&] { static_cast<void>(before.done()); }},
      {"an event is queried", [&] { before.synchronize(); }},
      {"memory that is not page-locked is copied", [&] { ctx_.stream().copy(host, x_.data, sizeof host); }},
      {"memory that is not page-locked is copied", [&] { ctx_.stream().copy(x_.data, host, sizeof host); }},
      {"a stream waits for work from before the recording", [&] { ctx_.stream().wait(before); }},
      {"the work of a second stream is not waited for",
       [&] {
         ctx_.stream().record(event);
         other.wait(event);
         other.fill(x_.data, 0, 4);
       }},
  };
  for (const auto& mistake : kMistakes) {
    const std::string said = complaint(mistake.work);
    EXPECT_THAT(said, HasSubstr(mistake.complaint + " while work is recorded, after '"));
  }
  EXPECT_THAT(complaint([] { const DeviceMemory more(kCuda, 16); }), HasSubstr("after 'add'"));
  add();  // work after a failed recording is not recorded
  EXPECT_EQ(y(), 0);
}

// A GEMM that is not in FP8 has no types for that: the bytes where they would be may hold anything.
TEST_F(Recorded, GemmIsTheSameWhateverUnusedBytesHold) {
  const Tensor c = x_.slice(0, 16).reshaped({4, 4}), a = y_.slice(0, 16).reshaped({4, 4});
  ops::gemm(ctx_, {.c = store(c), .a = a, .b = a});  // allocates the memory of the library
  const auto recorded = [&](int unused) {
    alignas(ops::Gemm) std::byte memory[sizeof(ops::Gemm)];
    std::memset(memory, unused, sizeof memory);
    const auto* g = std::construct_at(reinterpret_cast<ops::Gemm*>(memory), ops::Gemm{.c = store(c), .a = a, .b = a});
    return Graph(ctx_.stream(), "planted", [&] { ops::gemm(ctx_, *g); });
  };
  EXPECT_NO_THROW(recorded(0x55).require_same(recorded(0xAA)));
}

TEST_F(Recorded, OtherThreadsGoOn) {
  const Graph graph(ctx_.stream(), "sum", [&] { std::thread([] { const DeviceMemory more(kCuda, 16); }).join(); });
}

TEST_F(Recorded, WhatCannotBeIsDoneBetweenTheParts) {
  GraphCache cache(2);
  float value = 0;
  const auto step = [&] {
    cache.run(ctx_.stream(), "step", {1}, [&] {
      add();
      cache.between([&] { set_x(++value); });
      cache.between([&] { ctx_.synchronize(); });
      add();
    });
  };
  for (int i = 0; i < 4; ++i) step();
  EXPECT_EQ(y(), 0 + 1 + 1 + 2 + 2 + 3 + 3 + 4);
  EXPECT_EQ(cache.replays(), 3);
  EXPECT_EQ(cache.size(), 1);
}

TEST_F(Recorded, PartsThatAreMoreOrFewerAreNamed) {
  GraphCache cache(2);
  int parts = 2;
  const auto step = [&] {
    cache.run(ctx_.stream(), "step", {1}, [&] {
      for (int i = 0; i < parts; ++i) cache.between([&] { add(); });
    });
  };
  step();
  step();
  parts = 3;
  EXPECT_THAT(test::error_of(step).what(), HasSubstr("the number of parts differs"));
  parts = 2;
  step();  // the same record again
  EXPECT_EQ(cache.replays(), 2);
}

TEST_F(Recorded, ValueOfTheHostInALaunchIsNamed) {
  GraphCache cache(2);
  float rate = 1;
  const auto step = [&] {
    cache.run(ctx_.stream(), "step", {1}, [&] {
      set_x(rate);
      add();
    });
  };
  for (int i = 0; i < 3; ++i) step();
  rate = 2;
  EXPECT_THAT(test::error_of(step).what(), HasSubstr("part 0, 'fill' has other arguments than were recorded"));
}

TEST_F(Recorded, OtherNumberOfLaunchesIsNamed) {
  GraphCache cache(2);
  int times = 1;
  const auto step = [&] {
    cache.run(ctx_.stream(), "step", {1}, [&] {
      for (int i = 0; i < times; ++i) add();
    });
  };
  step();
  step();
  times = 2;
  EXPECT_THAT(test::error_of(step).what(), HasSubstr("part 1, nothing was recorded, now it is 'add'"));
}

TEST_F(Recorded, CacheKeepsWhatWasUsedLast) {
  GraphCache cache(2);
  set_x(1);
  const auto step = [&](std::int64_t key) { cache.run(ctx_.stream(), "step", {key}, [&] { add(); }); };
  step(1);
  EXPECT_EQ(cache.size(), 0u);  // its first run
  step(1);
  EXPECT_EQ(cache.size(), 1u);
  step(2);
  step(2);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.replays(), 2u);
  step(1);
  step(3);  // replaces 2
  EXPECT_EQ(cache.size(), 1u);
  step(1);
  EXPECT_EQ(cache.replays(), 4u);
  step(2);
  EXPECT_EQ(cache.replays(), 4u);
  EXPECT_EQ(y(), 8);
}

TEST_F(Recorded, CacheOfNoneRunsEverything) {
  GraphCache cache(0);
  set_x(1);
  for (int i = 0; i < 3; ++i) cache.run(ctx_.stream(), "step", {}, [&] { add(); });
  EXPECT_EQ(cache.replays(), 0u);
  EXPECT_EQ(y(), 3);
}

}  // namespace
}  // namespace qtrain::testing
