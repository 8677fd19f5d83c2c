#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "monitor/nvml_api.h"
#include "monitor/quantities.h"

namespace qtrain::monitor {

/// A process that computes on a GPU.
struct GpuProcess {
  std::int64_t pid = 0;
  std::optional<double> bytes;
};

/// One GPU as NVML sees it now.
struct GpuReading {
  int index = 0;
  std::string name;
  Values values;  ///< by the keys of gpu_quantities(), without those that the driver does not report
  std::vector<std::string> limited_by;  ///< reasons for reduced clocks: "power cap", "temperature", ...
  std::vector<GpuProcess> processes;
  std::string problem;  ///< why it cannot be read; empty if it can
};

/// The GPUs of this machine, read through the driver's NVML, which is loaded at run time. Without NVML there are none,
/// and `problem` says why.
class Gpus {
 public:
  explicit Gpus(const std::string& file = "libnvidia-ml.so.1");
  ~Gpus();
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  const std::string& problem() const { return problem_; }
  const std::string& driver() const { return driver_; }
  std::vector<GpuReading> read() const;

 private:
  GpuReading read_one(unsigned index) const;
  std::string reason(nvml::Return result) const;

  nvml::Functions nvml_{};
  bool started_ = false;
  std::string problem_, driver_;
};

}  // namespace qtrain::monitor
