#pragma once
/// The part of NVML's C interface that qtrain uses. Declared here because the library comes with the driver, is loaded
/// at run time and need not exist at build time. Source: NVML API Reference, and nvml.h of CUDA 13.
/// tests/monitor/nvml_api_native_test.cpp compares it with an installed nvml.h.
namespace qtrain::nvml {

struct Device;

enum Return : int { success = 0, not_supported = 3, insufficient_size = 7 };
enum ClockType : int { sm_clock = 1 };
enum TemperatureSensor : int { gpu_sensor = 0 };

/// Percent of the last sample period in which a kernel ran, and in which memory was read or written.
struct Utilization {
  unsigned gpu, memory;
};
/// Device memory in bytes.
struct Memory {
  unsigned long long total, free, used;
};
/// Result of nvmlDeviceGetComputeRunningProcesses_v3; `used` is all ones if the driver does not know.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

/// Reasons for clocks below the maximum: bits of nvmlDeviceGetCurrentClocksEventReasons.
enum ClockLimit : unsigned long long {
  idle = 0x1,
  application_clocks = 0x2,
  power_cap = 0x4,
  hardware_slowdown = 0x8,
  sync_boost = 0x10,
  thermal = 0x20,
  hardware_thermal = 0x40,
  power_brake = 0x80,
  display_clocks = 0x100,
};

/// Functions of the library; null if it lacks one.
struct Functions {
  Return (*init)();
  Return (*shutdown)();
  const char* (*error_string)(Return result);
  Return (*driver_version)(char* text, unsigned length);
  Return (*device_count)(unsigned* count);
  Return (*device_by_index)(unsigned index, Device** device);
  Return (*name)(Device* device, char* text, unsigned length);
  Return (*utilization)(Device* device, Utilization* percent);
  Return (*memory)(Device* device, Memory* bytes);
  Return (*temperature)(Device* device, TemperatureSensor sensor, unsigned* celsius);
  Return (*power)(Device* device, unsigned* milliwatts);
  Return (*power_limit)(Device* device, unsigned* milliwatts);
  Return (*clock)(Device* device, ClockType type, unsigned* megahertz);
  Return (*max_clock)(Device* device, ClockType type, unsigned* megahertz);
  Return (*clock_limits)(Device* device, unsigned long long* bits);
  Return (*processes)(Device* device, unsigned* count, ProcessInfo* infos);
};

}  // namespace qtrain::nvml
