// The times of a device's single launches, and the ranges that a profiler gets.
#include "core/launch_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "core/context.h"
#include "core/graph.h"
#include "core/timeline.h"
#include "core/transfer.h"
#include "emulator/driver.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace qtrain::testing {
namespace {

constexpr Device kCuda{DeviceKind::cuda, 0};
constexpr std::int64_t kSide = 16;

class Timed : public ::testing::Test {
 protected:
  Timed() {
    for (const Tensor& t : {x_, y_}) ops::fill(ctx_, {.y = t, .value = 1});
    ctx_.synchronize();
  }
  Tensor at(std::size_t offset) { return {memory_.data() + offset, DType::f32, {kSide, kSide}, kCuda}; }
  void add() { ops::add(ctx_, {.y = y_, .a = y_, .b = x_}); }
  float y() { return HostCopy(kCuda).of(ctx_, y_).as<float>()[3]; }
  static std::map<std::string, std::int64_t> counts(const std::vector<LaunchTimes::Row>& rows) {
    std::map<std::string, std::int64_t> all;
    for (const LaunchTimes::Row& r : rows) all[r.detail.empty() ? r.name : r.name + " " + r.detail] += r.launches;
    return all;
  }

  Ctx ctx_{kCuda, MatmulPrecision::storage, 1};
  DeviceMemory memory_{kCuda, 4096};
  Tensor x_ = at(0), y_ = at(1024), z_ = at(2048);
};

TEST_F(Timed, EachLaunchHasATimeOfItsOwn) {
  LaunchTimes times(ctx_.stream());
  add();
  add();
  ops::gemm(ctx_, {.c = store(z_), .a = x_, .b = y_});
  ctx_.stream().fill(z_.data, 0, z_.bytes());
  const std::vector<LaunchTimes::Row> rows = times.rows();
  EXPECT_THAT(counts(rows), ::testing::UnorderedElementsAre(std::pair("add", 2), std::pair("fill", 1),
                                                            std::pair("gemm 16x16x16 float32", 1)));
  for (const LaunchTimes::Row& r : rows) EXPECT_GT(r.seconds, 0) << r.name;
}

TEST_F(Timed, RecordedWorkRunsAsSingleLaunches) {
  GraphCache cache(4);
  const auto run = [&] { cache.run(ctx_.stream(), "sum", {1}, [&] { add(); }); };
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(cache.replays(), 2);
  {
    LaunchTimes times(ctx_.stream());
    run();
    EXPECT_THAT(counts(times.rows()), ::testing::ElementsAre(std::pair("add", 1)));
  }
  EXPECT_EQ(cache.replays(), 2);
  run();
  EXPECT_EQ(cache.replays(), 3) << "the record is kept for later";
  EXPECT_EQ(y(), 6);
}

TEST_F(Timed, AGateHoldsWhatIsQueuedBehindIt) {
  StreamGate gate(ctx_.stream());
  std::atomic<bool> ran = false;
  ctx_.stream().call([&] { ran = true; });
  EXPECT_FALSE(ran);
  gate.open();
  ctx_.synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(Timed, AGateThatNobodyOpensOpensByItself) {
  StreamGate gate(ctx_.stream());
  add();
  ctx_.synchronize();
  EXPECT_EQ(y(), 2);
}

TEST_F(Timed, AProfilerGetsTheRangesOfBlocksAndOps) {
  add();
  EXPECT_THAT(emulation::Ranges::instance().counts(), ::testing::IsEmpty()) << "nobody has asked for them";
  nvtx::start();
  {
    const timeline::Span block("forward of block", 3);
    add();
    add();
  }
  add();
  const std::map<std::string, int> counts = emulation::Ranges::instance().counts();
  EXPECT_EQ(counts.at("forward of block 3"), 1);
  EXPECT_EQ(counts.at("forward of block 3/add"), 2);
  EXPECT_EQ(counts.at("add"), 1);
}

}  // namespace
}  // namespace qtrain::testing
