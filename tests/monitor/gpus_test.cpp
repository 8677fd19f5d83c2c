// What the monitor reads through NVML, using the stand-in.
#include "monitor/gpus.h"

#include <gmock/gmock.h>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain::monitor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StandIn : public ::testing::Test {
 protected:
  StandIn() { ::setenv("QTRAIN_NVML_STATE", state_.c_str(), 1); }
  ~StandIn() override { ::unsetenv("QTRAIN_NVML_STATE"); }
  void state(const std::string& text) { write_file(state_, text); }

  qtrain::testing::TempFolder folder_;
  std::string state_ = (folder_ / "state").string();
  std::string library_ = std::string(QTRAIN_NVML_FOLDER) + "/libnvidia-ml.so.1";
};

TEST_F(StandIn, EverythingThatADriverTells) {
  state(
      "gpus 1\n0.busy 97\n0.traffic 41\n0.used 7e10\n0.total 8e10\n0.temperature 64\n0.milliwatts 612500\n"
      "0.limit_milliwatts 700000\n0.clock 1755\n0.max_clock 1980\n0.limits 36\n0.process 4242 69000000000\n0.process "
      "7\n");
  const Gpus gpus(library_);
  EXPECT_EQ(gpus.problem(), "");
  EXPECT_EQ(gpus.driver(), "570.86.10");
  const auto readings = gpus.read();
  ASSERT_EQ(readings.size(), 1u);
  const GpuReading& gpu = readings[0];
  EXPECT_EQ(gpu.name, "NVIDIA Stand-in 80GB");
  EXPECT_EQ(gpu.values, (Values{{"utilization_percent", 97},
                                {"memory_traffic_percent", 41},
                                {"memory_used_bytes", 7e10},
                                {"memory_total_bytes", 8e10},
                                {"temperature_celsius", 64},
                                {"power_watts", 612.5},
                                {"power_limit_watts", 700},
                                {"sm_clock_mhz", 1755},
                                {"sm_clock_max_mhz", 1980}}));
  EXPECT_THAT(gpu.limited_by, ElementsAre("power cap", "temperature"));
  ASSERT_EQ(gpu.processes.size(), 2u);
  EXPECT_EQ(gpu.processes[0].pid, 4242);
  EXPECT_EQ(gpu.processes[0].bytes, 6.9e10);
  EXPECT_EQ(gpu.processes[1].bytes, std::nullopt) << "the driver does not know";
}

TEST_F(StandIn, WhatACardLacksIsMissing) {
  state("gpus 1\n0.used 1e9\n0.total 2e9\n");
  const auto readings = Gpus(library_).read();
  ASSERT_EQ(readings.size(), 1u);
  EXPECT_EQ(readings[0].values, (Values{{"memory_used_bytes", 1e9}, {"memory_total_bytes", 2e9}}));
  EXPECT_THAT(readings[0].limited_by, IsEmpty());
}

TEST_F(StandIn, AGpuThatIsLostIsNamedAndTheOthersStay) {
  state("gpus 2\n0.lost 15\n1.busy 3\n");
  const auto readings = Gpus(library_).read();
  ASSERT_EQ(readings.size(), 2u);
  EXPECT_EQ(readings[0].problem, "Unknown Error");
  EXPECT_EQ(readings[1].values.at("utilization_percent"), 3);
}

TEST_F(StandIn, WithoutADriverAGpuOrTheLibraryThereIsAReason) {
  state("init 9\n");
  EXPECT_THAT(Gpus(library_).problem(), HasSubstr("Driver Not Loaded"));
  EXPECT_THAT(Gpus(library_).read(), IsEmpty());
  state("gpus 0\n");
  EXPECT_EQ(Gpus(library_).problem(), "NVML finds no GPU");
  EXPECT_THAT(Gpus("libno-such-nvml.so").problem(), HasSubstr("libno-such-nvml.so"));
}

}  // namespace
}  // namespace qtrain::monitor
