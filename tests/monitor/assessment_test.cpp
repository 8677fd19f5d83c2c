// The words and figures that describe a series of samples.
#include "monitor/assessment.h"

#include <gmock/gmock.h>

#include "monitor/table.h"

namespace qtrain::monitor {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::SizeIs;

constexpr double kGb = 1e9;

Summary machine() {
  Summary s;
  s.processors = 8;
  s.usable_cores = 8;
  s.usable_memory = 16 * kGb;
  return s;
}

Values host(double cpu_percent, double memory = 4 * kGb) {
  return {{"cpu_percent", cpu_percent}, {"memory_used_bytes", memory}};
}

struct Gpu {
  double busy = 0, traffic = 0, used = 70 * kGb, clock = 1900;
  std::vector<std::string> limited_by = {};
};
GpuReading reading(const Gpu& g, int index = 0) {
  return {.index = index,
          .name = "GPU of a test",
          .values = {{"utilization_percent", g.busy},
                     {"memory_traffic_percent", g.traffic},
                     {"memory_used_bytes", g.used},
                     {"memory_total_bytes", 80 * kGb},
                     {"temperature_celsius", 70},
                     {"power_watts", 650},
                     {"sm_clock_mhz", g.clock},
                     {"sm_clock_max_mhz", 2000}},
          .limited_by = g.limited_by};
}

/// Ten samples, one per second.
template <class Make>
Summary samples(Summary s, const Make& make) {
  for (int i = 1; i <= 10; ++i) {
    Sample sample = make(i);
    sample.seconds = i;
    s.add(sample);
  }
  return s;
}

Finding first(const Summary& s) {
  return assess(s).front();
}

TEST(Assessment, AGpuThatWorksIsHealthy) {
  const Finding f = first(
      samples(machine(), [](int) { return Sample{.host = host(10), .gpus = {reading({.busy = 96, .traffic = 40})}}; }));
  EXPECT_EQ(f.kind, "healthy");
  EXPECT_THAT(f.text, HasSubstr("GPU 0 is busy 96 %"));
}

TEST(Assessment, OneThatMovesDataMostOfTheTimeIsMemoryBound) {
  const Finding f = first(
      samples(machine(), [](int) { return Sample{.host = host(10), .gpus = {reading({.busy = 96, .traffic = 75})}}; }));
  EXPECT_EQ(f.kind, "memory_bound");
  EXPECT_THAT(f.text, AllOf(HasSubstr("96 %"), HasSubstr("75 %")));
}

TEST(Assessment, OneThatWaitsForABusyHostIsStarved) {
  const auto at = [](double cpu) {
    return first(samples(machine(), [cpu](int) { return Sample{.host = host(cpu), .gpus = {reading({.busy = 30})}}; }));
  };
  EXPECT_EQ(at(50).kind, "starved");
  EXPECT_THAT(at(50).text, HasSubstr("4.0 cores"));
  EXPECT_EQ(at(1).kind, "underused") << "nothing shows what it waits for";
}

TEST(Assessment, WaitingForRowsIsSeenBesideARun) {
  const auto at = [](double wait) {
    return first(samples(machine(), [wait](int i) {
      return Sample{.host = host(100),
                    .run = RunRow{.step = i, .values = {{"data_wait_percent", wait}, {"tokens_per_second", 100}}},
                    .new_row = true};
    }));
  };
  EXPECT_EQ(at(34).kind, "starved");
  EXPECT_THAT(at(34).text, HasSubstr("34 %"));
  EXPECT_EQ(at(2).kind, "healthy");
}

TEST(Assessment, HeatAndPowerThrottle) {
  const auto with = [](const std::string& by, double clock) {
    return first(samples(machine(), [&](int) {
      return Sample{.host = host(10), .gpus = {reading({.busy = 96, .clock = clock, .limited_by = {by}})}};
    }));
  };
  EXPECT_EQ(with("temperature", 1900).kind, "throttled");
  EXPECT_THAT(with("temperature", 1900).text, AllOf(HasSubstr("100 %"), HasSubstr("70 C"), HasSubstr("1900 of 2000")));
  EXPECT_EQ(with("power cap", 1200).kind, "throttled");
  EXPECT_EQ(with("power cap", 1900).kind, "healthy") << "usual under full load";
}

TEST(Assessment, AContainersLimitThrottlesToo) {
  Summary s = machine();
  s.usable_cores = 1.5;
  const Finding f = first(samples(s, [](int) {
    Values v = host(19);
    v["cpu_throttled_percent"] = 60;
    return Sample{.host = v};
  }));
  EXPECT_EQ(f.kind, "throttled");
  EXPECT_THAT(f.text, AllOf(HasSubstr("1.5 cores"), HasSubstr("60 %")));
}

TEST(Assessment, MemoryThatGrowsWillBeFull) {
  const auto growing = [](double start, double per_second) {
    return first(samples(machine(), [=](int i) { return Sample{.host = host(90, start + i * per_second)}; }));
  };
  EXPECT_EQ(growing(8 * kGb, 0.1 * kGb).kind, "out_of_memory_soon");  // 7 GB are left, which last 70 s
  EXPECT_THAT(growing(8 * kGb, 0.1 * kGb).text, AllOf(HasSubstr("8.4 GiB of 14.9 GiB"), HasSubstr("1:10")));
  EXPECT_EQ(growing(8 * kGb, 0.001 * kGb).kind, "healthy") << "not soon";
  EXPECT_EQ(growing(15.7 * kGb, 0).kind, "out_of_memory_soon");
}

TEST(Assessment, AGpuFilledAsPlannedIsNoWarning) {
  const auto used = [](double first_used, double per_second) {
    return first(samples(machine(), [=](int i) {
      return Sample{.host = host(10), .gpus = {reading({.busy = 90, .used = first_used + i * per_second})}};
    }));
  };
  EXPECT_EQ(used(79.5 * kGb, 0).kind, "healthy");
  EXPECT_EQ(used(60 * kGb, 0.5 * kGb).kind, "out_of_memory_soon");
}

TEST(Assessment, NothingToDoIsIdle) {
  EXPECT_EQ(first(samples(machine(), [](int) { return Sample{.host = host(1), .gpus = {reading({})}}; })).kind, "idle");
  EXPECT_EQ(first(samples(machine(), [](int) { return Sample{.host = host(40)}; })).kind, "underused");
  EXPECT_EQ(first(machine()).kind, "idle") << "no sample";
  Summary s = machine();
  s.watches_process = true;
  Values busy = host(100);
  busy["process_cpu_cores"] = 0.1;
  EXPECT_EQ(first(samples(s, [&](int) { return Sample{.host = busy}; })).kind, "idle")
      << "others work, not the process";
}

TEST(Statistics, MeanLeastMostAndSlope) {
  Statistics s;
  for (int i = 0; i < 5; ++i) s.add(100 + i, 1e12 + 3 * i);
  s.add(105, std::nan(""));
  EXPECT_EQ(s.count(), 5);
  EXPECT_EQ(s.mean(), 1e12 + 6);
  EXPECT_EQ(s.least(), 1e12);
  EXPECT_EQ(s.most(), 1e12 + 12);
  EXPECT_NEAR(s.slope(), 3, 1e-3);
}

TEST(Views, FitTheTerminal) {
  const auto make = [](int gpus) {
    return Sample{
        .host = host(10, 999.4 * kGb),
        .gpus =
            [gpus] {
              std::vector<GpuReading> all;
              for (int i = 0; i < gpus; ++i)
                all.push_back(reading({.busy = 96, .limited_by = {"temperature (hardware)", "power cap"}}, i));
              return all;
            }(),
        .run = RunRow{.step = 12, .values = {{"tokens_per_second", 123456}, {"loss", 1.25}}},
        .new_row = true};
  };
  for (const int columns : {60, 80, 120})
    for (const int gpus : {0, 1, 8}) {
      Sample now = make(gpus);
      const Heading heading{.watched = "process 1234567 (qtrain)", .interval = 0.5, .duration = 3600};
      const Summary s = samples(machine(), [&](int) { return now; });
      const auto lines = live_view(heading, now, s, columns - 1);
      EXPECT_THAT(lines, Each(SizeIs(Le(static_cast<std::size_t>(columns - 1)))));
      EXPECT_LE(lines.size(), 24u) << gpus;  // without the rows of a process
      std::string text = summary_text(heading, s, columns - 1);
      std::size_t longest = 0;
      for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
        longest = std::max(longest, end - begin);
      EXPECT_LT(longest, static_cast<std::size_t>(columns)) << text;
    }
}

TEST(Views, DrawTheLastMinutesFrom80ColumnsOn) {
  Sample now;
  const Summary s = samples(machine(), [&](int i) { return now = Sample{.host = host(25.0 * i, (i + 1) * kGb)}; });
  const auto row = [&](int columns, bool unicode) {
    for (const std::string& line : live_view({.unicode = unicode}, now, s, columns - 1))
      if (line.starts_with("CPU ")) return line;
    return std::string();
  };
  EXPECT_THAT(row(60, true), ::testing::EndsWith("%"));
  EXPECT_THAT(row(80, false), HasSubstr("#"));
  EXPECT_THAT(row(80, true), HasSubstr("█"));
  EXPECT_EQ(row(80, false).size(), 79u);
  EXPECT_EQ(row(120, false).size(), 101u) << "at most 40 bars";
}

TEST(Units, AreAtMostTenColumns) {
  EXPECT_EQ(in_unit(999.4, Unit::bytes), "999 B");
  EXPECT_EQ(in_unit(999.6, Unit::bytes), "1.0 KiB");
  EXPECT_EQ(in_unit(71.23e9, Unit::bytes), "66.3 GiB");
  EXPECT_EQ(in_unit(123.4e6, Unit::bytes_per_second), "123 MB/s");
  EXPECT_EQ(in_unit(99.96e6, Unit::bytes_per_second), "100 MB/s");
  EXPECT_EQ(in_unit(12.34, Unit::per_second), "12.3/s");
}

}  // namespace
}  // namespace qtrain::monitor
