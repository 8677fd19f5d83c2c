#include "dist/queued_calls.h"

#include <fmt/format.h>

#include <utility>

#include "core/graph.h"

namespace qtrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWatchInterval{20};

}  // namespace

QueuedCalls::QueuedCalls(Options options) : options_(std::move(options)), thread_([this] { watch(); }) {}

QueuedCalls::~QueuedCalls() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  thread_.join();
}

void QueuedCalls::add(Stream& stream, const std::string& call, const std::function<void()>& queue) {
  check(!is_recorded(stream), "a call that waits for other ranks cannot be recorded");
  std::unique_ptr<Call> next;
  {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      next = std::move(spare_.front());
      spare_.pop_front();
    }
  }
  if (!next) next = std::make_unique<Call>(options_.device);
  next->text = call;
  next->reached.reset();
  stream.record(next->begin);
  queue();
  stream.record(next->end);
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(next));
}

std::optional<QueuedCalls::Failure> QueuedCalls::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// If the watch fails, nothing more may be queued. The next wait for a stream reports errors of the device itself.
void QueuedCalls::watch() {
  std::unique_lock lock(mutex_);
  try {
    select(options_.device);
    while (!ends_ && !failure_) {
      check_calls(lock);
      ending_.wait_for(lock, kWatchInterval);
    }
  } catch (const Error& e) {
    failure_ = Failure{.call = "the watch over queued calls", .why = e.what()};
  }
}

void QueuedCalls::end(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = Failure{.call = calls_.empty() ? "a call" : calls_.front()->text, .why = why};
  }
  options_.give_up();
}

// Unlocks meanwhile, so that `failure` does not wait for the library.
void QueuedCalls::fail(std::unique_lock<std::mutex>& lock, const Failure& failure) {
  failure_ = failure;
  lock.unlock();
  options_.give_up();
  lock.lock();
}

void QueuedCalls::check_calls(std::unique_lock<std::mutex>& lock) {
  while (!calls_.empty() && calls_.front()->end.has_passed()) {
    spare_.push_back(std::move(calls_.front()));
    calls_.pop_front();
  }
  Call* call = calls_.empty() ? nullptr : calls_.front().get();
  if (call && !call->reached && call->begin.has_passed()) call->reached = Clock::now();
  report(call && call->reached ? call->text : std::string());
  if (!call) return;
  const std::string why = options_.error();
  const bool late = call->reached && Clock::now() - *call->reached > options_.timeout;
  if (why.empty() && !late) return;
  report(call->text);
  fail(lock, {.call = call->text, .why = why});
}

void QueuedCalls::report(const std::string& call) {
  if (call != std::exchange(reported_, call)) options_.waits(call);
}

}  // namespace qtrain
