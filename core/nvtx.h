#pragma once
#include <string>

/// Named ranges of the host's work (NVTX), which Nsight Systems and Nsight Compute show next to the kernels.
namespace qtrain::nvtx {

/// Sends ranges to the profiler from now on. They have no effect without a profiler or in a build without CUDA.
void start();
bool is_on();

/// A range of the current thread, from construction to destruction.
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
