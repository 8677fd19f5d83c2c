#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "dist/collective.h"

namespace qtrain {

/// A collective whose calls start work and wait for it.
class StartingCollective : public Collective {
 public:
  void all_reduce(Ctx& ctx, Tensor values, Reduction reduction) override;
  void broadcast(Ctx& ctx, Tensor values, int root) override;
  void all_gather(Ctx& ctx, ConstTensor mine, Tensor all) override;
  void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) override;
  void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) override;
  void barrier(Ctx& ctx) override;
  Pending start(std::function<void(Collective&)> work) override = 0;
  /// The returned collective runs its work directly, without a queue.
  std::unique_ptr<Collective> part(int first, int size) override;
  std::unique_ptr<Collective> counterparts(int size) override;
};

/// Runs all work in order on its own thread, so that `start` returns at once. After an error, all later work fails with
/// the same error.
class QueuedCollective : public StartingCollective {
 public:
  /// `lane`: the name of the thread in timelines.
  explicit QueuedCollective(std::unique_ptr<Collective> inner, std::string lane = "communication");
  /// Aborts running work.
  ~QueuedCollective() override;
  QueuedCollective(const QueuedCollective&) = delete;
  QueuedCollective& operator=(const QueuedCollective&) = delete;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Pending start(std::function<void(Collective&)> work) override;
  void disconnect() override { inner_->disconnect(); }

 private:
  void run_tasks();

  std::unique_ptr<Collective> inner_;
  std::string lane_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::packaged_task<void()>> tasks_;
  std::exception_ptr error_;  ///< of the first task that failed
  bool ends_ = false, busy_ = false;
  std::thread thread_;
};

/// A part of the ranks whose work is queued in order with that of the whole.
class QueuedPart : public StartingCollective {
 public:
  /// `whole` must outlive this.
  QueuedPart(Collective& whole, std::unique_ptr<Collective> part) : whole_(whole), part_(std::move(part)) {}
  int rank() const override { return part_->rank(); }
  int size() const override { return part_->size(); }
  Pending start(std::function<void(Collective&)> work) override;
  void disconnect() override { part_->disconnect(); }

 private:
  Collective& whole_;
  std::unique_ptr<Collective> part_;
};

}  // namespace qtrain
