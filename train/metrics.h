#pragma once
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>

#include "core/json.h"

namespace qtrain {

/// Resident memory of this process in MiB: now, and the most it ever was. Source: /proc/self/status.
struct ResidentMemory {
  double now_mb = 0, peak_mb = 0;
};
ResidentMemory resident_memory();

/// metrics.jsonl: every logged row as it happens. On a resume rows of later steps and a torn last line are cut off.
class MetricsFile {
 public:
  MetricsFile(const std::filesystem::path& file, std::int64_t resumed_step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  /// Errors: ErrorKind::disk.
  void append(const Json& row);

 private:
  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
};

/// Seconds since construction or the last lap.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  double lap() {
    const double s = seconds();
    begin_ = Clock::now();
    return s;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace qtrain
