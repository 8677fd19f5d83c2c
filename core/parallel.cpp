#include "core/parallel.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/build.h"
#include "core/error.h"

namespace qtrain {
int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return 1;
}

struct ThreadPool::State {
  using Body = std::function<void(std::int64_t, int)>;

  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake, done;
  std::atomic<std::uint64_t> generation{0};
  const Body* body = nullptr;
  std::int64_t tasks = 0;
  std::atomic<std::int64_t> next{0};
  std::atomic<int> busy{0};
  bool running = false;
  bool quit = false;
  std::exception_ptr error;

  // Ops follow each other within microseconds: spin a little before sleeping.
  template <class Condition>
  static void spin_while(Condition&& waiting) {
    for (int spin = 0; spin < 2000 && waiting(); ++spin) pause_briefly();
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      quit = true;
    }
    wake.notify_all();
    for (std::thread& t : workers) t.join();
  }

  void drain(int worker) {
    for (std::int64_t t; (t = next.fetch_add(1)) < tasks;) {
      try {
        (*body)(t, worker);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    }
  }

  void work(int worker) {
    for (std::uint64_t seen = 0;;) {
      spin_while([&] { return generation.load(std::memory_order_acquire) == seen; });
      if (generation.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return quit || generation.load() != seen; });
        if (quit) return;
      }
      seen = generation.load(std::memory_order_acquire);
      drain(worker);
      if (busy.fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
      const std::lock_guard lock(mutex);
      done.notify_one();
    }
  }
};

Error thread_error(const std::system_error& reason) {
  if (reason.code() != std::errc::resource_unavailable_try_again)
    return {ErrorKind::internal, {.cause = std::string("internal error: ") + reason.what()}};
  return {ErrorKind::memory,
          {.cause = "cannot start a thread: " + reason.code().message(),
           .remedy = "raise the limit of memory or processes (ulimit -v, -u), or lower \"threads\" or \"nproc\""}};
}

void fail_thread(const std::system_error& reason) {
  throw thread_error(reason);
}

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  const int n = threads > 0 ? threads : usable_processors();
  try {
    for (int i = 1; i < n; ++i) state_->workers.emplace_back([s = state_.get(), i] { s->work(i); });
  } catch (const std::system_error& e) {
    state_->stop();
    fail_thread(e);
  }
}

ThreadPool::~ThreadPool() {
  state_->stop();
}

int ThreadPool::size() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

void ThreadPool::run(std::int64_t tasks, const State::Body& body) {
  State& s = *state_;
  if (tasks <= 1 || s.workers.empty() || s.running) {
    for (std::int64_t t = 0; t < tasks; ++t) body(t, 0);
    return;
  }
  {
    const std::lock_guard lock(s.mutex);
    s.body = &body;
    s.tasks = tasks;
    s.next = 0;
    s.busy = static_cast<int>(s.workers.size());
    s.error = nullptr;
    s.running = true;
    s.generation.fetch_add(1);
  }
  s.wake.notify_all();
  s.drain(0);
  State::spin_while([&] { return s.busy.load(std::memory_order_acquire) > 0; });
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.busy.load() == 0; });
  s.running = false;
  if (s.error) std::rethrow_exception(s.error);
}

}  // namespace qtrain
