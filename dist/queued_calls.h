#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/device.h"

namespace qtrain {

/// Calls that are queued on a stream and wait there for other ranks. A thread watches them, because the host may be
/// waiting for the stream: a call that takes too long is aborted, so that the stream can continue.
class QueuedCalls {
 public:
  struct Options {
    Device device;
    std::chrono::milliseconds timeout{};                 ///< from when the stream reaches a call
    std::function<std::string()> error;                  ///< returns the error of queued calls, or empty
    std::function<void()> give_up;                       ///< aborts them
    std::function<void(const std::string& call)> waits;  ///< receives the call that the stream is in, or empty
  };
  /// The functions in `options` are called on the watching thread.
  explicit QueuedCalls(Options options);
  ~QueuedCalls();
  QueuedCalls(const QueuedCalls&) = delete;
  QueuedCalls& operator=(const QueuedCalls&) = delete;

  /// Queues a call with `queue`; throws an internal error while work of the stream is recorded, because replayed calls
  /// would not be watched.
  void add(Stream& stream, const std::string& call, const std::function<void()>& queue);

  /// Aborts queued calls, and those added later, for this reason.
  void end(const std::string& why);

  /// The aborted call. Work queued after it has read wrong values.
  struct Failure {
    std::string call;
    std::string why;  ///< the library's message; empty if it took too long
  };
  std::optional<Failure> failure();

 private:
  struct Call {
    Event begin, end;
    std::string text = {};
    std::optional<std::chrono::steady_clock::time_point> reached = {};  ///< when the stream was first seen in it

    explicit Call(Device device) : begin(device), end(device) {}
  };
  void watch();
  void check_calls(std::unique_lock<std::mutex>& lock);
  void fail(std::unique_lock<std::mutex>& lock, const Failure& failure);
  void report(const std::string& call);

  Options options_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::deque<std::unique_ptr<Call>> calls_;
  std::list<std::unique_ptr<Call>> spare_;
  std::string reported_;
  std::optional<Failure> failure_;
  std::thread thread_;
};

}  // namespace qtrain
