#include "data/prefetch.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/parallel.h"

namespace qtrain {

Prefetcher::Prefetcher(const Loader& loader, const Options& options, Places places)
    : loader_(loader), ahead_(static_cast<std::size_t>(std::max(options.ahead, 1))), places_(std::move(places)) {
  try {
    for (int i = 0; i < std::max(options.threads, 1); ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& e) {
    stop();
    fail_thread(e);
  }
}

Prefetcher::~Prefetcher() {
  stop();
}

void Prefetcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// If a thread runs out of memory, the run ends with an error, as if a row could not be read.
void Prefetcher::work() {
  try {
    prepare();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    ended_ = true;
    ready_.notify_all();
  }
}

void Prefetcher::prepare() {
  for (std::unique_lock lock(mutex_);;) {
    room_.wait(lock, [&] { return stopping_ || ended_ || slots_.size() < ahead_; });
    if (stopping_ || ended_) return;
    const std::optional<BatchPlace> place = places_();
    ended_ = !place;
    if (!place) return ready_.notify_all();
    const auto slot = std::make_shared<Slot>();
    slot->place = *place;
    slots_.push_back(slot);
    lock.unlock();
    try {
      slot->batch = loader_.batch(place->epoch, place->index);
    } catch (...) {
      slot->error = std::current_exception();
    }
    lock.lock();
    slot->ready = true;
    ready_.notify_all();
  }
}

Batch Prefetcher::take(const BatchPlace& place) {
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [&] { return slots_.empty() ? ended_ : slots_.front()->ready; });
  if (slots_.empty() && error_) std::rethrow_exception(error_);
  check(!slots_.empty(), "a batch beyond the end of the run");
  const std::shared_ptr<Slot> slot = std::move(slots_.front());
  slots_.pop_front();
  lock.unlock();
  room_.notify_one();
  if (slot->error) std::rethrow_exception(slot->error);
  check(slot->place == place, "batches must be taken in the order of the run");
  return std::move(slot->batch);
}

}  // namespace qtrain
