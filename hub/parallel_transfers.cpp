#include "hub/parallel_transfers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace qtrain {
namespace {

class TransferThreads {
 public:
  explicit TransferThreads(const ParallelTransfers& job) : job_(job) {}

  void run() {
    constexpr std::chrono::milliseconds kShow{100};
    const std::size_t threads = std::min<std::size_t>(job_.count, static_cast<std::size_t>(job_.connections));
    running_ = threads;
    std::vector<std::thread> workers;
    for (std::size_t i = 0; i < threads; ++i) workers.emplace_back([this] { work(); });
    for (std::unique_lock lock(mutex_); running_ > 0;) {
      ended_.wait_for(lock, kShow);
      job_.progress.show();
    }
    for (std::thread& worker : workers) worker.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void work() {
    const Advance advance = [this](std::int64_t bytes) {
      job_.progress.add(bytes);
      return !failed_;
    };
    try {
      HttpClient client;
      for (std::size_t i = next_++; i < job_.count && !failed_; i = next_++) job_.transfer(client, i, advance);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failed_) error_ = std::current_exception();
      failed_ = true;
    }
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_all();
  }

  const ParallelTransfers& job_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_ = 0;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;
};

}  // namespace

void run_transfers(const ParallelTransfers& transfers) {
  TransferThreads(transfers).run();
}

}  // namespace qtrain
