#include "core/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/formats/json.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;

TEST(Timeline, HoldsWhatEachThreadDidWhen) {
  const testing::TempFolder folder;
  { const timeline::Span before("before it is on"); }
  timeline::start();
  timeline::name_thread("main \"lane\"");
  std::thread([] {
    timeline::name_thread("other");
    const timeline::Span span("block", 3);
  }).join();
  {
    const timeline::Span outer("outer");
    const timeline::Span inner("inner");
  }
  EXPECT_EQ(timeline::write(folder / "trace.json", {.number = 2, .name = "rank 2", .label = "processor"}), 0);
  EXPECT_FALSE(timeline::is_on());

  std::map<int, std::string> lanes;
  std::vector<std::string> spans;
  const Json trace = read_json(folder / "trace.json");
  std::map<std::string, std::pair<double, double>> times;
  for (const Json& e : trace.at("traceEvents")) {
    EXPECT_EQ(e.at("pid"), 2);
    if (e.at("name") == "thread_name") lanes[e.at("tid")] = e.at("args").at("name");
    if (e.at("ph") != "X") continue;
    spans.push_back(lanes.at(e.at("tid")) + ": " + e.at("name").get<std::string>());
    times[e.at("name")] = {e.at("ts"), e.at("ts").get<double>() + e.at("dur").get<double>()};
  }
  EXPECT_THAT(spans, ElementsAre("other: block 3", "main \"lane\": inner", "main \"lane\": outer"));
  EXPECT_LE(times["outer"].first, times["inner"].first);
  EXPECT_GE(times["outer"].second, times["inner"].second);
  EXPECT_GT(times["outer"].first, 1e15);  // microseconds since 1970, so that the timelines of ranks can be compared
}

TEST(Timeline, CountsWhatItHasNoRoomFor) {
  const testing::TempFolder folder;
  timeline::start({.max_spans = 2});
  for (int i = 0; i < 5; ++i) const timeline::Span span("span", i);
  EXPECT_EQ(timeline::write(folder / "trace.json", {.number = 0, .name = "rank 0", .label = "processor"}), 3);
  const Json trace = read_json(folder / "trace.json");
  EXPECT_EQ(trace.at("otherData").at("dropped_spans"), 3);
  EXPECT_THAT(dump_json(trace), ::testing::HasSubstr("span 1"));
  timeline::start();
  EXPECT_EQ(timeline::write(folder / "next.json", {}), 0);
}

}  // namespace
}  // namespace qtrain
