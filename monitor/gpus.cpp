#include "monitor/gpus.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <utility>

namespace qtrain::monitor {
namespace {

constexpr unsigned kTextLength = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE

constexpr std::pair<nvml::ClockLimit, const char*> kLimits[] = {
    {nvml::power_cap, "power cap"},     {nvml::hardware_slowdown, "hardware slowdown"},
    {nvml::thermal, "temperature"},     {nvml::hardware_thermal, "temperature (hardware)"},
    {nvml::power_brake, "power brake"}, {nvml::application_clocks, "application clocks"},
    {nvml::sync_boost, "sync boost"},   {nvml::display_clocks, "display clocks"}};

/// Loads the first of the names that the library has, because newer drivers renamed functions; null if it has none.
template <class F>
void load(void* library, F& function, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (function == nullptr) function = reinterpret_cast<F>(dlsym(library, name));
}

nvml::Functions functions_of(void* library) {
  nvml::Functions f{};
  load(library, f.init, {"nvmlInit_v2", "nvmlInit"});
  load(library, f.shutdown, {"nvmlShutdown"});
  load(library, f.error_string, {"nvmlErrorString"});
  load(library, f.driver_version, {"nvmlSystemGetDriverVersion"});
  load(library, f.device_count, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
  load(library, f.device_by_index, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
  load(library, f.name, {"nvmlDeviceGetName"});
  load(library, f.utilization, {"nvmlDeviceGetUtilizationRates"});
  load(library, f.memory, {"nvmlDeviceGetMemoryInfo"});
  load(library, f.temperature, {"nvmlDeviceGetTemperature"});
  load(library, f.power, {"nvmlDeviceGetPowerUsage"});
  load(library, f.power_limit, {"nvmlDeviceGetEnforcedPowerLimit"});
  load(library, f.clock, {"nvmlDeviceGetClockInfo"});
  load(library, f.max_clock, {"nvmlDeviceGetMaxClockInfo"});
  load(library, f.clock_limits,
       {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  load(library, f.processes, {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
  return f;
}

/// The value that a function writes to its last argument; empty if the function is missing or fails.
template <class T, class F, class... A>
std::optional<T> got(F function, A... arguments) {
  T value{};
  if (function == nullptr || function(arguments..., &value) != nvml::success) return {};
  return value;
}

template <class F>
std::string text_of(F function) {
  std::array<char, kTextLength> text{};
  return function(text.data(), kTextLength) == nvml::success ? text.data() : "";
}

std::vector<GpuProcess> processes_of(const nvml::Functions& f, nvml::Device* device) {
  constexpr unsigned kMaxProcesses = 1024;
  if (f.processes == nullptr) return {};
  unsigned count = 0;
  nvml::Return result = f.processes(device, &count, nullptr);
  std::vector<nvml::ProcessInfo> infos;
  while (result == nvml::insufficient_size && count < kMaxProcesses) {  // the number may have grown meanwhile
    infos.resize(count + 8);
    count = static_cast<unsigned>(infos.size());
    result = f.processes(device, &count, infos.data());
  }
  if (result != nvml::success) return {};
  infos.resize(std::min<std::size_t>(count, infos.size()));
  std::vector<GpuProcess> processes;
  for (const nvml::ProcessInfo& info : infos) {
    GpuProcess process{.pid = info.pid};
    if (info.used != ~0ull) process.bytes = static_cast<double>(info.used);
    processes.push_back(process);
  }
  return processes;
}

std::optional<double> scaled(std::optional<unsigned> value, double factor) {
  return value ? std::optional(*value * factor) : std::nullopt;
}

Values values_of(const nvml::Functions& f, nvml::Device* device) {
  Values v;
  if (const auto use = got<nvml::Utilization>(f.utilization, device)) {
    v["utilization_percent"] = use->gpu;
    v["memory_traffic_percent"] = use->memory;
  }
  if (const auto memory = got<nvml::Memory>(f.memory, device)) {
    v["memory_used_bytes"] = static_cast<double>(memory->used);
    v["memory_total_bytes"] = static_cast<double>(memory->total);
  }
  put(v, "temperature_celsius", scaled(got<unsigned>(f.temperature, device, nvml::gpu_sensor), 1));
  put(v, "power_watts", scaled(got<unsigned>(f.power, device), 1e-3));
  put(v, "power_limit_watts", scaled(got<unsigned>(f.power_limit, device), 1e-3));
  put(v, "sm_clock_mhz", scaled(got<unsigned>(f.clock, device, nvml::sm_clock), 1));
  put(v, "sm_clock_max_mhz", scaled(got<unsigned>(f.max_clock, device, nvml::sm_clock), 1));
  return v;
}

}  // namespace

Gpus::Gpus(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* error = dlerror();
    problem_ = fmt::format("NVML cannot be loaded: {}", error != nullptr ? error : file);
    return;
  }
  nvml_ = functions_of(library);
  if (!nvml_.init || !nvml_.shutdown || !nvml_.device_count || !nvml_.device_by_index) {
    problem_ = fmt::format("{} lacks functions of NVML", file);
    return;
  }
  if (const nvml::Return result = nvml_.init(); result != nvml::success) {
    problem_ = "NVML cannot be initialized: " + reason(result);
    return;
  }
  started_ = true;
  if (nvml_.driver_version) driver_ = text_of(nvml_.driver_version);
  unsigned count = 0;
  if (const nvml::Return result = nvml_.device_count(&count); result != nvml::success)
    problem_ = "NVML cannot count the GPUs: " + reason(result);
  else if (count == 0)
    problem_ = "NVML finds no GPU";
}

Gpus::~Gpus() {
  if (started_) nvml_.shutdown();
}

std::string Gpus::reason(nvml::Return result) const {
  const char* text = nvml_.error_string ? nvml_.error_string(result) : nullptr;
  return text != nullptr ? text : fmt::format("error {}", static_cast<int>(result));
}

GpuReading Gpus::read_one(unsigned index) const {
  GpuReading reading{.index = static_cast<int>(index)};
  nvml::Device* device = nullptr;
  if (const nvml::Return result = nvml_.device_by_index(index, &device); result != nvml::success) {
    reading.problem = reason(result);
    return reading;
  }
  if (nvml_.name) reading.name = text_of([&](char* text, unsigned length) { return nvml_.name(device, text, length); });
  reading.values = values_of(nvml_, device);
  const auto bits = got<unsigned long long>(nvml_.clock_limits, device).value_or(0);
  for (const auto& [bit, words] : kLimits)
    if ((bits & bit) != 0) reading.limited_by.emplace_back(words);
  reading.processes = processes_of(nvml_, device);
  return reading;
}

std::vector<GpuReading> Gpus::read() const {
  std::vector<GpuReading> readings;
  unsigned count = 0;
  if (!started_ || nvml_.device_count(&count) != nvml::success) return readings;
  for (unsigned i = 0; i < count; ++i) readings.push_back(read_one(i));
  return readings;
}

}  // namespace qtrain::monitor
