#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <system_error>

#include "core/error.h"

namespace qtrain {

/// The error of a process that cannot start another thread: ErrorKind::memory, because a thread needs address space for
/// its stack and counts as a process. Any other error of the system is internal.
Error thread_error(const std::system_error& reason);
/// Throws it.
[[noreturn]] void fail_thread(const std::system_error& reason);

/// Number of processors that this process may run on.
int usable_processors();

/// A fixed set of worker threads. Work is divided by shape, never by the number of threads, so results do not depend on
/// it.
class ThreadPool {
 public:
  /// `threads` <= 0: one per processor the process may run on. The caller's thread is one of them. Errors:
  /// ErrorKind::memory.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  /// Calls body(task, worker) once for each task in [0, tasks), in any order, on any worker in [0, size()).
  /// For determinism, a task's result may depend on `task` only. Nested calls run inline. The first exception of a body
  /// is rethrown here after all tasks have ended.
  void run(std::int64_t tasks, const std::function<void(std::int64_t task, int worker)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qtrain
