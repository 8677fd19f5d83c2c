#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "core/log.h"

namespace qtrain {

/// "12.0 kB", "3.4 MB", "5.67 GB".
std::string size_text(std::uint64_t bytes);

/// How much of a set of files has come or gone, shown from time to time. `add` may be called by several threads, `show`
/// by one.
class TransferProgress {
 public:
  /// `activity`: "fetching owner/name".
  TransferProgress(Log& log, std::string activity, std::uint64_t total);
  ~TransferProgress();
  TransferProgress(const TransferProgress&) = delete;
  TransferProgress& operator=(const TransferProgress&) = delete;

  void add(std::int64_t bytes) { done_ += bytes; }
  void show();

 private:
  using Clock = std::chrono::steady_clock;
  Log& log_;
  std::string activity_;
  std::int64_t total_;
  std::atomic<std::int64_t> done_ = 0;
  std::int64_t done_then_ = 0;
  double rate_ = 0;
  Clock::time_point measured_ = Clock::now(), said_ = measured_;
};

}  // namespace qtrain
