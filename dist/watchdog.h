#pragma once
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/store.h"

namespace qtrain {

/// A thread that tells the others what this rank does when one of them misses somebody, whatever this rank is busy
/// with.
class Watchdog {
 public:
  struct Options {
    Endpoint server;  ///< of the store
    int rank = 0, ranks = 1;
    std::chrono::milliseconds patience{20'000};  ///< to connect
  };
  explicit Watchdog(const Options& options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Between these calls this rank waits for the others in `what`; several threads may.
  void enter(const std::string& what);
  void leave();
  /// The GPU waits for the others in `call`; empty: it does not. From any thread.
  void wait_on_device(const std::string& call);

  /// Tells the others that this rank ends with an error of its own.
  void tell_failure(Store& store);
  /// Asks all ranks what they do. Who does not answer within a few seconds is gone or stopped; another one who
  /// computes is late.
  struct Report {
    std::vector<int> failed, silent, busy;
  };
  Report ask_all(Store& store) const;

 private:
  void listen();

  Options options_;
  std::mutex mutex_;
  std::string waits_in_;         ///< what was entered last; empty: it computes
  int entered_ = 0;              ///< and not left
  std::string device_waits_in_;  ///< likewise of the GPU
  bool failed_ = false;
  Store store_;  ///< of the thread
  std::thread thread_;
};

}  // namespace qtrain
