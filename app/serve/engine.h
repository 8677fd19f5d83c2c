#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/log.h"
#include "model/generation/continuous_batch.h"

namespace qtrain::serve {

/// Lets threads share a batch, which one thread runs: the one that calls `run`.
class Engine {
 public:
  using Ticket = std::uint64_t;

  /// At most `longest_queue` sequences wait beside those that the batch decodes.
  Engine(ContinuousBatch& batch, std::int64_t longest_queue, Log& log)
      : batch_(batch), max_(batch.limits().sequences + longest_queue), log_(log) {}

  /// Hands sequences over; none where there is no room for all of them, or no more are taken. What they call runs on
  /// the thread of `run`; a sequence that throws there ends alone, and the log says so.
  std::optional<std::vector<Ticket>> submit(std::vector<SequenceRequest> requests);
  /// Takes out those of them that have not finished; what they call may still run once.
  void cancel(const std::vector<Ticket>& tickets);

  /// Runs until `close` and all answers are finished, or until `end`. Throws what a step throws; it has ended then.
  void run();
  /// Takes no more sequences.
  void close();
  /// Leaves what is not finished.
  void end();

  bool closed() const { return closed_; }
  bool ended() const { return ended_; }
  /// Sequences that were submitted and have not finished, and those that are decoded of them.
  std::int64_t outstanding() const { return outstanding_; }
  std::int64_t active() const { return std::min<std::int64_t>(outstanding_, batch_.limits().sequences); }

 private:
  void take_submitted();
  void work();
  void tell(Ticket ticket, const std::exception& e);

  struct Submitted {
    Ticket ticket;
    SequenceRequest request;
  };
  ContinuousBatch& batch_;
  std::int64_t max_;
  Log& log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Submitted> submitted_;
  std::vector<Ticket> cancelled_;
  Ticket next_ = 0;
  std::map<Ticket, std::uint64_t> running_;  ///< of the thread of `run`
  std::atomic<std::int64_t> outstanding_ = 0;
  std::atomic<bool> closed_ = false, ended_ = false;
};

}  // namespace qtrain::serve
