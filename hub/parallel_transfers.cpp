#include "hub/parallel_transfers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace qtrain {
namespace {

class TransferThreads {
 public:
  explicit TransferThreads(const ParallelTransfers& job) : job_(job) {}
  ~TransferThreads() {
    failed_ = true;
    join();
  }
  TransferThreads(const TransferThreads&) = delete;
  TransferThreads& operator=(const TransferThreads&) = delete;

  void run() {
    constexpr std::chrono::milliseconds kShow{100};
    const std::size_t threads = std::min<std::size_t>(job_.count, static_cast<std::size_t>(job_.connections));
    running_ = threads;
    try {
      for (std::size_t i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // no more threads can be started: those that run do the work
      if (workers_.empty()) throw;
      const std::lock_guard lock(mutex_);
      running_ -= threads - workers_.size();
    }
    for (std::unique_lock lock(mutex_); running_ > 0;) {
      ended_.wait_for(lock, kShow);
      job_.progress.show();
    }
    join();
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

  void join() {
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  const ParallelTransfers& job_;
  std::vector<std::thread> workers_;
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
