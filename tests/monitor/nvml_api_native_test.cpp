// Compares our declarations of NVML with the header of an installed version.
#include <gtest/gtest.h>
#include <nvml.h>

#include <cstddef>

#include "monitor/nvml_api.h"

namespace qtrain {
namespace {

static_assert(nvml::success == static_cast<int>(NVML_SUCCESS));
static_assert(nvml::not_supported == static_cast<int>(NVML_ERROR_NOT_SUPPORTED));
static_assert(nvml::insufficient_size == static_cast<int>(NVML_ERROR_INSUFFICIENT_SIZE));
static_assert(nvml::sm_clock == static_cast<int>(NVML_CLOCK_SM));
static_assert(nvml::gpu_sensor == static_cast<int>(NVML_TEMPERATURE_GPU));
static_assert(sizeof(nvml::Utilization) == sizeof(nvmlUtilization_t));
static_assert(offsetof(nvml::Utilization, memory) == offsetof(nvmlUtilization_t, memory));
static_assert(sizeof(nvml::Memory) == sizeof(nvmlMemory_t));
static_assert(offsetof(nvml::Memory, used) == offsetof(nvmlMemory_t, used));
static_assert(sizeof(nvml::ProcessInfo) == sizeof(nvmlProcessInfo_t));
static_assert(offsetof(nvml::ProcessInfo, used) == offsetof(nvmlProcessInfo_t, usedGpuMemory));
static_assert(offsetof(nvml::ProcessInfo, gpu_instance) == offsetof(nvmlProcessInfo_t, gpuInstanceId));
static_assert(nvml::idle == nvmlClocksThrottleReasonGpuIdle);
static_assert(nvml::application_clocks == nvmlClocksThrottleReasonApplicationsClocksSetting);
static_assert(nvml::power_cap == nvmlClocksThrottleReasonSwPowerCap);
static_assert(nvml::hardware_slowdown == nvmlClocksThrottleReasonHwSlowdown);
static_assert(nvml::sync_boost == nvmlClocksThrottleReasonSyncBoost);
static_assert(nvml::thermal == nvmlClocksThrottleReasonSwThermalSlowdown);
static_assert(nvml::hardware_thermal == nvmlClocksThrottleReasonHwThermalSlowdown);
static_assert(nvml::power_brake == nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
static_assert(nvml::display_clocks == nvmlClocksThrottleReasonDisplayClockSetting);

TEST(NvmlApi, IsThatOfTheInstalledHeader) {
  EXPECT_EQ(NVML_DEVICE_NAME_V2_BUFFER_SIZE, 96);
}

}  // namespace
}  // namespace qtrain
