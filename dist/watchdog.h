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

/// A thread that tells the others what this rank does when one of them misses somebody, whatever this rank is busy
/// with, and that looks after waits of this rank which take long: whether the ranks wait in different calls, which
/// would never end, and, once a stop was asked for, whether one of them is gone.
class Watchdog {
 public:
  struct Options {
    Meeting meeting;  ///< where the store is
    int rank = 0, ranks = 1;
    std::chrono::milliseconds patience{20'000};       ///< to connect
    std::chrono::milliseconds look{10'000};           ///< a wait as long is looked after; then twice as long, and so on
    std::chrono::milliseconds stop_patience{15'000};  ///< likewise once a stop was asked for
  };
  explicit Watchdog(const Options& options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Between these calls this rank waits for the others; several threads may, each in a group of its own. `give_up`
  /// ends the wait with an error, from any thread.
  void enter(const RankWait& wait, std::function<void()> give_up);
  void leave(const std::string& group);
  /// The wait has ended with an error: it is still told, and no longer given up.
  void fail(const std::string& group);
  /// The GPU waits for the others in `call`; empty: it does not. From any thread, also while a wait is
  /// given up.
  void wait_on_device(const std::string& call);

  /// Tells the others that this rank ends with its own error.
  void tell_failure(Store& store);
  /// Tells the others that this rank has finished normally.
  void tell_end(Store& store);
  /// Whether a rank has ended otherwise, as far as this one has heard by now: within seconds.
  bool misses_rank() const { return misses_rank_; }
  /// Asks all ranks what they are doing. A rank that does not answer within a few seconds is gone or stopped; one that
  /// is still computing is late.
  struct Report {
    std::vector<int> failed, silent, busy;
    std::string verdict;  ///< why a wait was given up, on whichever rank that was found out; empty: none was
  };
  Report ask_all(Store& store) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct OwnWait {
    RankWait wait;
    std::function<void()> give_up;
    Clock::time_point since = Clock::now(), looked = since;
    std::vector<RankWait> seen = {};  ///< what the ranks of the group waited in when it was looked after
  };
  using Answers = std::vector<std::optional<RankAnswer>>;  ///< of ranks, in order; none: it is silent
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
  void look_after_waits();
  void look_after(const RankWait& wait);
  void look_for_silent();
  void give_up(const std::string& verdict);
  void end_waits();

  Options options_;
  mutable std::mutex mutex_;
  std::map<std::string, OwnWait> waits_;  ///< by groups
  std::atomic<bool> device_waits_ = false, misses_rank_ = false, ends_ = false;
  std::int64_t round_ = 1;              ///< of questions: the next one
  Clock::time_point asked_for_stop_{};  ///< when the thread looked for silent ranks last
  Store store_;                         ///< of the thread
  std::thread thread_;
};

}  // namespace qtrain
