#pragma once
#include <string>

/// Named ranges of the host's work (NVTX), which Nsight Systems and Nsight Compute show beside the kernels.
namespace qtrain::nvtx {

/// From here on ranges are sent to the profiler; without one they go nowhere. A build without CUDA has none.
void start();
bool is_on();

/// From its construction to its end, on its thread.
class Range {
 public:
  explicit Range(const std::string& name) : Range(name.c_str()) {}
  explicit Range(const char* name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  bool open_ = false;
};

}  // namespace qtrain::nvtx
