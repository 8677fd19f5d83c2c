#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace qtrain::serve {

/// Lets a few threads at a time do what takes much memory or time; the others wait.
class Turns {
 public:
  explicit Turns(int at_a_time) : free_(at_a_time) {}

  /// A turn of one thread, which ends when this object is destroyed.
  class Turn {
   public:
    explicit Turn(Turns& turns) : turns_(&turns) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { turns_->end(); }

   private:
    Turns* turns_;
  };
  /// Waits for a turn. Calls `check` after each interval without one; it throws to give up.
  Turn wait(const std::function<void()>& check, std::chrono::milliseconds interval);

 private:
  void end();

  std::mutex mutex_;
  std::condition_variable changed_;
  int free_;
};

}  // namespace qtrain::serve
