// Replaces NVML in tests: the functions of libnvidia-ml.so.1 for the GPUs that the file $QTRAIN_NVML_STATE describes at
// the time of a call. Its lines are "gpus N", "init CODE" and "INDEX.KEY NUMBER ..."; values that are missing are not
// supported.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "monitor/nvml_api.h"

namespace {

using namespace qtrain::nvml;

constexpr int kNotFound = 6;

/// The numbers in every line with this key.
std::vector<std::vector<double>> lines_of(const std::string& key) {
  const char* file = std::getenv("QTRAIN_NVML_STATE");
  std::ifstream in(file != nullptr ? file : "");
  std::vector<std::vector<double>> found;
  for (std::string line, name; std::getline(in, line);) {
    std::istringstream words(line);
    words >> name;
    std::vector<double> numbers;
    for (double x = 0; words >> x;) numbers.push_back(x);
    if (name == key) found.push_back(numbers);
  }
  return found;
}

std::string key_of(Device* device, const char* name) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(device) - 1) + "." + name;
}

template <class T>
Return put(Device* device, const char* name, T* value) {
  const auto lines = lines_of(key_of(device, name));
  if (lines.empty()) return not_supported;
  *value = static_cast<T>(lines[0].at(0));
  return success;
}

Return put_text(const std::string& text, char* to, unsigned length) {
  if (text.size() + 1 > length) return insufficient_size;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return success;
}

}  // namespace

extern "C" {

Return nvmlInit_v2() {
  const auto code = lines_of("init");
  return code.empty() ? success : static_cast<Return>(code[0].at(0));
}
Return nvmlShutdown() {
  return success;
}
const char* nvmlErrorString(Return result) {
  return result == 9 ? "Driver Not Loaded" : "Unknown Error";
}
Return nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return put_text("570.86.10", text, length);
}
Return nvmlDeviceGetCount_v2(unsigned* count) {
  const auto gpus = lines_of("gpus");
  *count = gpus.empty() ? 0 : static_cast<unsigned>(gpus[0].at(0));
  return success;
}
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  if (const auto lost = lines_of(std::to_string(index) + ".lost"); !lost.empty())
    return static_cast<Return>(lost[0].at(0));
  unsigned count = 0;
  nvmlDeviceGetCount_v2(&count);
  *device = reinterpret_cast<Device*>(std::uintptr_t{index} + 1);
  return index < count ? success : static_cast<Return>(kNotFound);
}
Return nvmlDeviceGetName(Device*, char* text, unsigned length) {
  return put_text("NVIDIA Stand-in 80GB", text, length);
}
Return nvmlDeviceGetUtilizationRates(Device* device, Utilization* percent) {
  const Return result = put(device, "busy", &percent->gpu);
  put(device, "traffic", &percent->memory);
  return result;
}
Return nvmlDeviceGetMemoryInfo(Device* device, Memory* bytes) {
  put(device, "total", &bytes->total);
  return put(device, "used", &bytes->used);
}
Return nvmlDeviceGetTemperature(Device* device, TemperatureSensor, unsigned* celsius) {
  return put(device, "temperature", celsius);
}
Return nvmlDeviceGetPowerUsage(Device* device, unsigned* milliwatts) {
  return put(device, "milliwatts", milliwatts);
}
Return nvmlDeviceGetEnforcedPowerLimit(Device* device, unsigned* milliwatts) {
  return put(device, "limit_milliwatts", milliwatts);
}
Return nvmlDeviceGetClockInfo(Device* device, ClockType, unsigned* megahertz) {
  return put(device, "clock", megahertz);
}
Return nvmlDeviceGetMaxClockInfo(Device* device, ClockType, unsigned* megahertz) {
  return put(device, "max_clock", megahertz);
}
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device* device, unsigned long long* bits) {  // as before driver 535
  return put(device, "limits", bits);
}
Return nvmlDeviceGetComputeRunningProcesses_v3(Device* device, unsigned* count, ProcessInfo* infos) {
  const auto lines = lines_of(key_of(device, "process"));
  const unsigned room = *count;
  *count = static_cast<unsigned>(lines.size());
  if (room < lines.size()) return insufficient_size;
  for (std::size_t i = 0; i < lines.size(); ++i)
    infos[i] = {.pid = static_cast<unsigned>(lines[i].at(0)),
                .used = lines[i].size() > 1 ? static_cast<unsigned long long>(lines[i][1]) : ~0ull};
  return success;
}
}
