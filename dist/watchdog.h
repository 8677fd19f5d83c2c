#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dist/rank_wait.h"
#include "dist/store.h"

namespace qtrain {

/// A thread that tells other ranks what this one is doing when they miss a rank, whatever this rank is busy with. It
/// also checks long waits of this rank: whether the ranks wait in different calls, which would never end, and, once a
/// stop was requested, whether one of them is gone.
class Watchdog {
 public:
  struct Options {
    Meeting meeting;  ///< where the store is
    int rank = 0, ranks = 1;
    std::chrono::milliseconds patience{20'000};       ///< to connect
    std::chrono::milliseconds check_after{10'000};    ///< first check of a wait; the interval then doubles
    std::chrono::milliseconds stop_patience{15'000};  ///< likewise once a stop was requested
  };
  explicit Watchdog(const Options& options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Between these calls this rank waits for the others; several threads may do so, each in a different group.
  /// `give_up` ends the wait with an error, from any thread.
  void enter(const RankWait& wait, std::function<void()> give_up);
  void leave(const std::string& group);
  /// The wait has ended with an error: it is still reported, but no longer aborted.
  void fail(const std::string& group);
  /// Says that the GPU waits for the others in `call`, or does not if it is empty. Thread-safe, even while a wait is
  /// being aborted.
  void wait_on_device(const std::string& call);

  /// Tells the others that this rank ends with its own error.
  void announce_failure(Store& store);
  /// Tells the others that this rank has finished normally.
  void announce_end(Store& store);
  /// Whether a rank is known to have ended otherwise; this takes a few seconds.
  bool misses_rank() const { return misses_rank_; }
  /// Asks all ranks what they are doing. A rank that does not answer within a few seconds is gone or stopped; one that
  /// is still computing is late.
  struct Report {
    std::vector<int> failed, silent, busy;
    std::string verdict;  ///< why a wait was aborted, as found by any rank; empty if none was
  };
  Report ask_all(Store& store) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct OwnWait {
    RankWait wait;
    std::function<void()> give_up;
    Clock::time_point since = Clock::now(), checked = since;
    std::vector<RankWait> seen = {};  ///< what the ranks of the group waited in at the last check
  };
  using Answers = std::vector<std::optional<RankAnswer>>;  ///< of ranks, in order; nothing for a silent one
  void listen();
  void answer(std::int64_t round);
  RankWait everybody() const;
  struct Question {
    std::int64_t round;
    const RankWait& of;
    std::function<void()> meanwhile = {};
  };
  static Answers ask(Store& store, const Question& question);
  Answers ask_again(const RankWait& of);
  void check_waits();
  void check_wait(const RankWait& wait);
  void check_for_silent();
  void give_up(const std::string& verdict);
  void end_waits();

  Options options_;
  mutable std::mutex mutex_;
  std::map<std::string, OwnWait> waits_;  ///< by group
  std::atomic<bool> device_waits_ = false, misses_rank_ = false, ends_ = false;
  std::int64_t round_ = 1;              ///< number of the next question
  Clock::time_point asked_for_stop_{};  ///< when the thread last checked for silent ranks
  Store store_;                         ///< used by the thread
  std::thread thread_;
};

}  // namespace qtrain
