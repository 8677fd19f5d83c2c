#include "app/serve/turns.h"

namespace qtrain::serve {

Turns::Turn Turns::wait(const std::function<void()>& check, std::chrono::milliseconds interval) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval, [this] { return free_ > 0; })) {
    lock.unlock();
    check();
    lock.lock();
  }
  --free_;
  return Turn(*this);
}

void Turns::end() {
  const std::lock_guard lock(mutex_);
  ++free_;
  changed_.notify_one();
}

}  // namespace qtrain::serve
