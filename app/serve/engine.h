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

/// Lets several threads share a batch, which the thread that calls `run` decodes.
class Engine {
 public:
  using Ticket = std::uint64_t;

  /// At most `longest_queue` sequences wait in addition to those being decoded.
  Engine(ContinuousBatch& batch, std::int64_t longest_queue, Log& log)
      : batch_(batch), max_(batch.limits().sequences + longest_queue), log_(log) {}

  /// Submits sequences; returns none if there is no room for all of them or the engine is closed. Their callbacks run
  /// on the thread of `run`; a sequence whose callback throws ends alone, which is logged.
  std::optional<std::vector<Ticket>> submit(std::vector<SequenceRequest> requests);
  /// Removes those that have not finished; their callbacks may still run once.
  void cancel(const std::vector<Ticket>& tickets);

  /// Runs until `end`, or until all answers are finished after `close`. If a step throws, ends and rethrows.
  void run();
  /// Stops accepting sequences.
  void close();
  /// Stops without finishing answers.
  void end();

  bool closed() const { return closed_; }
  bool ended() const { return ended_; }
  /// Number of submitted sequences that have not finished, and of those being decoded.
  std::int64_t outstanding() const { return outstanding_; }
  std::int64_t active() const { return std::min<std::int64_t>(outstanding_, batch_.limits().sequences); }

 private:
  void take_submitted();
  void work();
  void log_failure(Ticket ticket, const std::exception& e);

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
  std::map<Ticket, std::uint64_t> running_;  ///< used only by the thread that calls `run`
  std::atomic<std::int64_t> outstanding_ = 0;
  std::atomic<bool> closed_ = false, ended_ = false;
};

}  // namespace qtrain::serve
