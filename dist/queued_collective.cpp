#include "dist/queued_collective.h"

#include <utility>

#include "core/timeline.h"

namespace qtrain {

QueuedCollective::QueuedCollective(std::unique_ptr<Collective> inner, std::string lane)
    : inner_(std::move(inner)), lane_(std::move(lane)), thread_([this] { run_tasks(); }) {}

QueuedCollective::~QueuedCollective() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    if (busy_ || !tasks_.empty()) inner_->disconnect();  // no one waits for it any more
  }
  added_.notify_all();
  thread_.join();
}

void QueuedCollective::run_tasks() {
  timeline::name_thread(lane_);
  std::unique_lock lock(mutex_);
  while (true) {
    added_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
    if (ends_) return;
    std::packaged_task<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    task();
    lock.lock();
    busy_ = false;
  }
}

Pending QueuedCollective::start(std::function<void(Collective&)> work) {
  std::packaged_task<void()> task([this, work = std::move(work)] {
    if (error_) std::rethrow_exception(error_);
    try {
      work(*inner_);
    } catch (...) {
      error_ = std::current_exception();
      throw;
    }
  });
  Pending pending(task.get_future().share());
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  added_.notify_one();
  return pending;
}

void StartingCollective::all_reduce(Ctx& ctx, Tensor values, Reduction reduction) {
  start([&](Collective& c) { c.all_reduce(ctx, values, reduction); }).wait();
}

void StartingCollective::broadcast(Ctx& ctx, Tensor values, int root) {
  start([&](Collective& c) { c.broadcast(ctx, values, root); }).wait();
}

void StartingCollective::all_gather(Ctx& ctx, ConstTensor mine, Tensor all) {
  start([&](Collective& c) { c.all_gather(ctx, mine, all); }).wait();
}

void StartingCollective::all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) {
  start([&](Collective& c) { c.all_to_all(ctx, sent, received); }).wait();
}

void StartingCollective::reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) {
  start([&](Collective& c) { c.reduce_scatter(ctx, sent, sum); }).wait();
}

std::unique_ptr<Collective> StartingCollective::part(int first, int size) {
  std::unique_ptr<Collective> part;
  start([&](Collective& c) { part = c.part(first, size); }).wait();
  return part;
}

std::unique_ptr<Collective> StartingCollective::counterparts(int size) {
  std::unique_ptr<Collective> part;
  start([&](Collective& c) { part = c.counterparts(size); }).wait();
  return part;
}

void StartingCollective::barrier(Ctx& ctx) {
  start([&](Collective& c) { c.barrier(ctx); }).wait();
}

Pending QueuedPart::start(std::function<void(Collective&)> work) {
  return whole_.start([this, work = std::move(work)](Collective&) { work(*part_); });
}

}  // namespace qtrain
