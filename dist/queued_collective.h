#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "dist/collective.h"

namespace qtrain {

/// Each call is work that is begun and waited for.
class StartingCollective : public Collective {
 public:
  void all_reduce(Ctx& ctx, Tensor values, Reduction reduction) override;
  void broadcast(Ctx& ctx, Tensor values, int root) override;
  void all_gather(Ctx& ctx, ConstTensor mine, Tensor all) override;
  void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) override;
  void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) override;
  void barrier(Ctx& ctx) override;
  Pending start(std::function<void(Collective&)> work) override = 0;
  /// Without a queue.
  std::unique_ptr<Collective> part(int first, int size) override;
  std::unique_ptr<Collective> counterparts(int size) override;
};

/// Does everything on a thread of its own, one after the other, so that `start` returns at once. After an error nothing
/// more is done: what follows ends with the same error.
class QueuedCollective : public StartingCollective {
 public:
  explicit QueuedCollective(std::unique_ptr<Collective> inner);
  /// Ends what is under way.
  ~QueuedCollective() override;
  QueuedCollective(const QueuedCollective&) = delete;
  QueuedCollective& operator=(const QueuedCollective&) = delete;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Pending start(std::function<void(Collective&)> work) override;
  void disconnect() override { inner_->disconnect(); }

 private:
  void work_off();

  std::unique_ptr<Collective> inner_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::packaged_task<void()>> tasks_;
  std::exception_ptr error_;  ///< of the first task that had one
  bool ends_ = false, works_ = false;
  std::thread thread_;
};

/// A part of the ranks that does everything in its turn with what is begun on the whole.
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
