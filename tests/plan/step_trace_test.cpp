#include "plan/step_trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <tuple>
#include <vector>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

constexpr int kHost = 0, kExchanging = 1;

/// A timeline that is written span by span, in milliseconds since a day in 2026.
class Timeline {
 public:
  explicit Timeline(const char* lane = "communication") {
    events_.push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", kExchanging}, {"args", {{"name", lane}}}});
  }
  void add(int lane, const std::string& name, std::pair<double, double> when) {
    constexpr std::int64_t kStart = 1'795'000'000'000'123;  // microseconds
    const auto [begin, end] = when;
    const auto micro = [](double milliseconds) { return std::llround(milliseconds * 1000); };
    events_.push_back({{"name", name},
                       {"ph", "X"},
                       {"ts", kStart + micro(begin)},
                       {"dur", micro(end) - micro(begin)},
                       {"pid", 0},
                       {"tid", lane}});
  }
  void drop(int spans) { dropped_ = spans; }
  void write(const std::filesystem::path& folder, int rank) const {
    const Json all{{"otherData", {{"dropped_spans", dropped_}}}, {"traceEvents", events_}};
    write_file(folder / fmt::format("trace-rank-{}.json", rank), dump_json(all));
  }

 private:
  Json events_ = Json::array();
  int dropped_ = 0;
};

const std::string kGradients = fmt::format("all_to_all of 64 {}", name_of(DType::f32)),
                  kValues = fmt::format("all_gather of 32 {}", name_of(DType::f32)),
                  kSums = fmt::format("all_reduce of 3 {}", name_of(DType::f64)),
                  kStop = fmt::format("all_reduce of 1 {}", name_of(DType::f64));

/// Updates of 100 ms, starting at `begin`: one block, exchanges of its gradients and values in which this rank waits
/// for `wait`, and 8 ms without a name in which the ranks agree to continue. Ranks that share tokens exchange keys
/// within a block.
void add_update(Timeline& t, double begin, double wait) {
  const auto at = [&](double from, double to) { return std::pair(begin + from, begin + to); };
  t.add(kExchanging, kStop, at(1, 2));
  t.add(kHost, "embedding", at(8, 10));
  t.add(kHost, "forward of block 0", at(10, 20));
  for (const std::string& keys : {kValues, kGradients}) t.add(kHost, keys, at(11, 12));
  t.add(kHost, "head", at(20, 25));
  t.add(kHost, "backward of block 0", at(25, 50));
  t.add(kHost, "gradient of the embedding", at(50, 52));
  t.add(kHost, "add gradients", at(52, 80));
  t.add(kExchanging, kGradients, at(52, 60 + wait));
  t.add(kExchanging, kSums, at(78, 80));
  t.add(kHost, "update", at(80, 100));
  t.add(kExchanging, kValues, at(90 - wait, 99));
}

StepExchanges exchanges() {
  StepExchanges all;
  all.units.resize(2);
  all.units[1] = {.gather = {{Exchange::all_gather, kValues, 0}}, .reduce = {{Exchange::reduce, kGradients, 0}}};
  return all;
}

TEST(StepTrace, HasDurationsOfWhatTheScheduleIsMadeOf) {
  const TempFolder folder;
  for (const int rank : {0, 1}) {
    Timeline t;
    for (int update = 0; update < 4; ++update) add_update(t, 100.0 * update, rank == 0 ? 5 : 0);
    t.write(folder.path(), rank);
  }
  const StepTrace trace = StepTrace::read(folder.path());
  EXPECT_EQ(trace.ranks(), 2);
  EXPECT_EQ(trace.updates(), 3);
  EXPECT_NEAR(trace.measured({1, 2}), 0.1, 1e-9);
  const StepCosts c = trace.costs(exchanges(), {.stage = ZeroStage::optimizer}, {1, 0});
  EXPECT_NEAR(c.between, 0.008, 1e-9);
  EXPECT_NEAR(c.blocks.at(0).forward, 0.010, 1e-9);
  EXPECT_NEAR(c.blocks.at(0).backward, 0.025, 1e-9);
  EXPECT_NEAR(c.embedding, 0.002, 1e-9);
  EXPECT_NEAR(c.head, 0.005, 1e-9);
  EXPECT_NEAR(c.embedding_grad, 0.002, 1e-9);
  EXPECT_NEAR(c.update, 0.011, 1e-9) << "the exchange inside it is left out";
  EXPECT_NEAR(trace.costs(exchanges(), {.stage = ZeroStage::optimizer}, {0, 0}).update, 0.006, 1e-9)
      << "and so is the waiting inside it";
  EXPECT_NEAR(c.norm, 0.002, 1e-9);
  EXPECT_NEAR(c.units.at(1).gather, 0.009, 1e-9);
  EXPECT_NEAR(c.units.at(1).reduce, 0.008, 1e-9) << "without waiting for the other rank";
  EXPECT_EQ(c.step_sum, 0);
  EXPECT_NEAR(trace.costs(exchanges(), {}, {0, 0}).step_sum, 0.008, 1e-9);
  const TracedRun run = traced_run(trace, exchanges(), {.stage = ZeroStage::optimizer});
  EXPECT_EQ(run.updates, 3);
  EXPECT_NEAR(run.measured, 0.1, 1e-9);
  EXPECT_NEAR(run.predicted, 0.008 + 0.044 + 0.008 + 0.002 + 0.011 + 0.009, 1e-9)
      << "work that no rank does is left out";
  EXPECT_NEAR(run.waiting, 0.019 + 0.005, 1e-9) << "it also waits for the other rank's update";
}

// Sums after each micro-batch are counted exactly once.
TEST(StepTrace, OrderedSumsAreThoseOfMicroBatches) {
  const TempFolder folder;
  for (const int rank : {0, 1}) {
    Timeline t;
    for (const double begin : {0.0, 100.0, 200.0}) {
      add_update(t, begin, 0);
      t.add(kHost, "add gradients of micro-batch", {begin + 3, begin + 7});
      t.add(kExchanging, kGradients, {begin + 4, begin + 6.5});
    }
    t.write(folder.path(), rank);
  }
  const StepShape ordered{.order = ReductionOrder::micro_batches, .micro_batches = 2};
  const StepCosts c = StepTrace::read(folder.path()).costs(exchanges(), ordered, {0, 0});
  EXPECT_NEAR(c.micro_batch_sum, 0.0025 / 2, 1e-9);
  EXPECT_NEAR(c.between, 0.008 - 0.004, 1e-9);
  EXPECT_NEAR(c.step_sum, 0.008, 1e-9);
}

TEST(StepTrace, RefusesTimelinesOfGpusAndThoseThatAreFull) {
  const TempFolder folder;
  const auto cause = [&](Timeline t) {
    for (const double begin : {0.0, 100.0}) add_update(t, begin, 0);
    for (const int rank : {0, 1}) t.write(folder.path(), rank);
    return test::error_of([&] { StepTrace::read(folder.path()); }).text().cause;
  };
  EXPECT_THAT(cause(Timeline("data")), HasSubstr("when the host queued work"));
  Timeline full;
  full.drop(7);
  EXPECT_THAT(cause(full), HasSubstr("7 spans were dropped"));
}

TEST(StepTrace, LeavesOutUpdatesThatAreSaved) {
  const TempFolder folder;
  for (const int rank : {0, 1}) {
    Timeline t;
    for (const double begin : {0.0, 100.0, 200.0, 1200.0}) add_update(t, begin, 0);
    t.add(kHost, "save", {300, 1200});
    t.write(folder.path(), rank);
  }
  const StepTrace trace = StepTrace::read(folder.path());
  EXPECT_EQ(trace.updates(), 2);
  EXPECT_NEAR(trace.measured({0, 1}), 0.1, 1e-9);
}

/// Two ranks with timelines of the same spans of the host, each with a name, a begin and an end.
std::string refusal_of(const std::vector<std::tuple<std::string, double, double>>& spans) {
  const TempFolder folder;
  Timeline t;
  for (const auto& [name, begin, end] : spans) t.add(kHost, name, {begin, end});
  for (const int rank : {0, 1}) t.write(folder.path(), rank);
  const Error e = test::error_of([&] { StepTrace::read(folder.path()); });
  EXPECT_EQ(e.kind(), ErrorKind::input);
  return e.text().cause;
}

TEST(StepTrace, RefusesTimelinesThatNoRunWrites) {
  EXPECT_THAT(refusal_of({{"update", 0, 5}, {"update", 10, 15}}), HasSubstr("no span \"add gradients\""));
  EXPECT_THAT(refusal_of({{"update", 0, 5}, {"update", 1, 5}}), HasSubstr("ends before the previous one"));
  EXPECT_THAT(refusal_of({{"update", 0, 50}, {"update", 10, 15}}), HasSubstr("ends before the previous one"));
}

TEST(StepTrace, TakesTimeThatGrowsWithTheTimeline) {
  constexpr int kUpdates = 40'000;
  const TempFolder folder;
  Timeline t;
  for (int i = 0; i < kUpdates; ++i) {
    t.add(kHost, "add gradients of micro-batch", {10.0 * i, 10.0 * i + 1});
    t.add(kExchanging, kGradients, {10.0 * i, 10.0 * i + 1});
    t.add(kHost, "add gradients", {10.0 * i + 1, 10.0 * i + 2});
    t.add(kHost, "update", {10.0 * i + 2, 10.0 * i + 3});
  }
  for (const int rank : {0, 1}) t.write(folder.path(), rank);
  const std::clock_t begin = std::clock();
  const StepTrace trace = StepTrace::read(folder.path());
  EXPECT_EQ(trace.updates(), kUpdates - 1);
  EXPECT_THAT(test::error_of([&] { traced_run(trace, exchanges(), {}); }).text().cause, HasSubstr("no step matches"));
  EXPECT_LT(std::clock() - begin, 8 * CLOCKS_PER_SEC);
}

TEST(StepTrace, SaysWhatIsMissing) {
  const TempFolder folder;
  const auto error = [&] { return test::error_of([&] { StepTrace::read(folder.path()); }).text(); };
  EXPECT_THAT(error().remedy, HasSubstr("profile=true"));
  Timeline t;
  add_update(t, 0, 0);
  t.write(folder.path(), 0);
  t.write(folder.path(), 1);
  EXPECT_THAT(error().cause, HasSubstr("no second step"));
  add_update(t, 100, 0);
  t.write(folder.path(), 0);
  EXPECT_THAT(error().cause, HasSubstr("from different runs"));
  t.write(folder.path(), 1);
  StepExchanges others = exchanges();
  others.units[1].gather[0].name = "all_gather of 33 float32";
  const StepTrace trace = StepTrace::read(folder.path());
  const Error e = test::error_of([&] { trace.costs(others, {}, {0, 0}); });
  EXPECT_THAT(e.text().cause, HasSubstr("all_gather of 33 float32"));
  EXPECT_EQ(e.kind(), ErrorKind::input);
  const StepExchanges own = exchanges();
  const StepShape shape{.stage = ZeroStage::optimizer};
  EXPECT_TRUE(trace.follows(ExpectedStep(own, shape), 0));
  for (const StepShape& shape : {StepShape{}, {.stage = ZeroStage::optimizer, .micro_batches = 2}}) {
    StepExchanges same = exchanges();
    if (shape.stage == ZeroStage::none) same.units.assign(2, {});
    EXPECT_THAT(test::error_of([&] { traced_run(trace, same, shape); }).text().cause, HasSubstr("no step matches"));
  }
}

}  // namespace
}  // namespace qtrain
