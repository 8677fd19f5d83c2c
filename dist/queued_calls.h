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

/// Calls that are queued on a stream and wait there for other ranks. A thread looks after them, since the host may be
/// waiting for the stream: one that takes too long is given up, which lets the stream go on.
class QueuedCalls {
 public:
  struct Options {
    Device device;
    std::chrono::milliseconds timeout{};  ///< from when the stream comes to a call
    std::function<std::string()> error;   ///< what went wrong in the calls that are queued; empty: nothing
    std::function<void()> give_up;        ///< ends them
    std::function<void(const std::string& call)> waits;  ///< hears in which call the stream is; empty: in none
  };
  /// The functions are called on the thread.
  explicit QueuedCalls(Options options);
  ~QueuedCalls();
  QueuedCalls(const QueuedCalls&) = delete;
  QueuedCalls& operator=(const QueuedCalls&) = delete;

  /// Queues a call with `queue`; an internal error while work of the stream is recorded, since a call that is replayed
  /// would not be looked after.
  void add(Stream& stream, const std::string& call, const std::function<void()>& queue);

  /// Aborts queued calls, and those added later, for this reason.
  void end(const std::string& why);

  /// The aborted call. Work queued after it has read wrong values.
  struct Failure {
    std::string call;
    std::string why;  ///< in the words of the library; empty: it took too long
  };
  std::optional<Failure> failure();

 private:
  struct Call {
    Event begin, end;
    std::string text = {};
    std::optional<std::chrono::steady_clock::time_point> reached = {};  ///< when the stream was seen to be there

    explicit Call(Device device) : begin(device), end(device) {}
  };
  void watch();
  void look(std::unique_lock<std::mutex>& lock);
  void fail(std::unique_lock<std::mutex>& lock, const Failure& failure);
  void tell(const std::string& call);

  Options options_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::deque<std::unique_ptr<Call>> calls_;
  std::list<std::unique_ptr<Call>> spare_;
  std::string told_;
  std::optional<Failure> failure_;
  std::thread thread_;
};

}  // namespace qtrain
