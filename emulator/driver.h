#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emulator/device.h"
#include "emulator/order.h"
#include "emulator/record.h"

/// State of the emulated driver: streams with their queued work, events, pinned memory, graphs.
namespace qtrain::emulation {

struct Queued {
  std::function<void()> run;
  Stamp at;
};
struct Queue {
  std::deque<Queued> work;
  std::uint64_t number = 0, queued = 0;
  std::atomic<std::uint64_t> done = 0;  ///< also read by other threads
  Progress seen;                        ///< what it has waited for on other streams, for the next work that is queued
  int device = 0;

  Progress reached() const {
    Progress all = seen;
    all.see(number, queued);
    return all;
  }
};

struct Point {
  Recording::Mark mark;  ///< for an event in a recording
  std::shared_ptr<Queue> queue;
  std::uint64_t ticket = 0;
  Progress reached;
  std::shared_ptr<std::chrono::steady_clock::time_point> time =
      std::make_shared<std::chrono::steady_clock::time_point>();
};

/// Counts the waits of streams for events. One wait can be skipped, to simulate a program with that bug.
struct Waits {
  std::uint64_t asked_for = 0;
  std::uint64_t left_out = 0;  ///< number of the wait to skip, from 1; 0: none
};

/// Profiler ranges, as paths: "forward of block 0/rms_norm".
class Ranges {
 public:
  static Ranges& instance() {
    static Ranges ranges;
    return ranges;
  }
  void push(const char* name) noexcept {
    const std::lock_guard lock(mutex_);
    std::vector<std::string>& path = paths_[std::this_thread::get_id()];
    path.push_back(path.empty() ? name : path.back() + "/" + name);
    ++counts_[path.back()];
  }
  void pop() noexcept {
    const std::lock_guard lock(mutex_);
    paths_[std::this_thread::get_id()].pop_back();
  }
  /// How often each range was started, on any thread.
  std::map<std::string, int> counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
  std::map<std::thread::id, std::vector<std::string>> paths_;  ///< open ranges
};

/// Streams, events and pinned memory of the process, like those of a GPU driver.
class Driver {
 public:
  static Driver& instance() {
    static Driver driver;
    return driver;
  }

  std::shared_ptr<Queue> queue(void* stream) {
    const std::lock_guard lock(mutex_);
    return queues_.at(stream);
  }
  void* add_queue() {
    const std::lock_guard lock(mutex_);
    auto queue = std::make_shared<Queue>();
    queue->number = ++numbers_;
    queue->device = selected();
    queues_.emplace(queue.get(), queue);
    return queue.get();
  }
  void remove_queue(void* stream) {
    const std::lock_guard lock(mutex_);
    queues_.erase(stream);
  }
  Point& point(void* event) {
    const std::lock_guard lock(mutex_);
    return *points_.at(event);
  }
  void* add_point() {
    const std::lock_guard lock(mutex_);
    auto point = std::make_unique<Point>();
    void* handle = point.get();
    points_.emplace(handle, std::move(point));
    return handle;
  }
  void remove_point(void* event) {
    const std::lock_guard lock(mutex_);
    points_.erase(event);
  }
  /// Sets the device of the calling thread.
  void select(int device) {
    const std::lock_guard lock(mutex_);
    selected_[std::this_thread::get_id()] = device;
  }
  int selected() {
    const std::lock_guard lock(mutex_);
    return selected_[std::this_thread::get_id()];
  }
  std::vector<std::shared_ptr<Queue>> all() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Queue>> list;
    for (const auto& [handle, queue] : queues_) list.push_back(queue);
    return list;
  }

  void* pin(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto memory = std::make_unique<std::byte[]>(bytes);
    void* p = memory.get();
    std::memset(p, 0xff, bytes);
    pinned_.emplace(p, std::pair{std::move(memory), bytes});
    return p;
  }
  void unpin(void* p) {
    const std::lock_guard lock(mutex_);
    pinned_.erase(p);
  }
  bool is_pinned(const void* p) {
    const std::lock_guard lock(mutex_);
    auto it = pinned_.upper_bound(const_cast<void*>(p));
    if (it == pinned_.begin()) return false;
    --it;
    return static_cast<const std::byte*>(p) < static_cast<const std::byte*>(it->first) + it->second.second;
  }
  void* keep(std::shared_ptr<Record> graph) {
    const std::lock_guard lock(mutex_);
    void* handle = graph.get();
    graphs_.emplace(handle, std::move(graph));
    return handle;
  }
  std::shared_ptr<Record> graph(void* handle) {
    const std::lock_guard lock(mutex_);
    return graphs_.at(handle);
  }
  void forget(void* graph) {
    const std::lock_guard lock(mutex_);
    graphs_.erase(graph);
  }
  std::unique_ptr<Recording>& recording() { return recording_; }
  /// Throws if `what` is not allowed during a recording and the calling thread is recording.
  void outside_of_records(const char* what) const {
    if (recording_) recording_->refuse(what);
  }
  Stamp stamp(const Queue& queue) {
    const std::lock_guard lock(mutex_);
    return {.stream = queue.number, .ticket = queue.queued + 1, .sequence = ++sequence_, .before = queue.seen};
  }
  /// Called when the host has waited for the work in `reached`.
  void settle(const Progress& reached) {
    const std::lock_guard lock(mutex_);
    traffic_.settle(reached, ++sequence_);
    std::uint64_t oldest = sequence_;
    for (const auto& [handle, queue] : queues_)
      if (!queue->work.empty()) oldest = std::min(oldest, queue->work.front().at.sequence);
    traffic_.forget(oldest);
  }
  Traffic& traffic() { return traffic_; }
  Waits& waits() { return waits_; }
  /// Counts a wait and returns whether to skip it.
  bool leaves_out_wait() {
    const std::lock_guard lock(mutex_);
    return ++waits_.asked_for == waits_.left_out;
  }
  const Stamp*& running() { return running_; }
  /// An error of work that nobody was waiting for; reported at the next synchronization.
  std::exception_ptr& kept_error() { return kept_error_; }
  bool coin() {
    state_ = state_ * 6364136223846793005u + settings().seed * 2 + 1;
    return state_ >> 63;
  }

 private:
  std::recursive_mutex mutex_;
  std::map<void*, std::shared_ptr<Queue>> queues_;
  std::map<void*, std::unique_ptr<Point>> points_;
  std::map<void*, std::pair<std::unique_ptr<std::byte[]>, std::size_t>> pinned_;
  std::map<void*, std::shared_ptr<Record>> graphs_;
  std::map<std::thread::id, int> selected_;
  std::unique_ptr<Recording> recording_;
  Traffic traffic_;
  Waits waits_;
  const Stamp* running_ = nullptr;
  std::exception_ptr kept_error_;
  std::uint64_t state_ = 1, numbers_ = 0, sequence_ = 0;
};

/// Runs queued work up to a ticket. An error ends the work of every stream.
void drain(Queue& queue, std::uint64_t ticket);
/// Runs queued work because the host waits for a stream.
void drain_for_host(Queue& queue, std::uint64_t ticket, const Progress& reached);
/// For destructors, which cannot report errors: an error is kept until the next synchronization.
void drain_quietly(Queue& queue);

}  // namespace qtrain::emulation
