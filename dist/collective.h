#pragma once
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/context.h"
#include "core/tensor.h"

namespace qtrain {

enum class Reduction : std::uint8_t { sum, max };

/// Work that may still be running; a default-constructed one is done.
class Pending {
 public:
  Pending() = default;
  explicit Pending(std::shared_future<void> done) : wait_([done = std::move(done)] { done.get(); }) {}
  /// `wait` as below; it may be called again.
  explicit Pending(std::function<void()> wait) : wait_(std::move(wait)) {}
  /// Waits until it is done and rethrows its error. For work on a different stream than the context's, the context's
  /// stream waits, not the host.
  void wait() const {
    if (wait_) wait_();
  }

 private:
  std::function<void()> wait_;
};

/// Collective operations of the processes (ranks) of a run. Every rank calls the same functions in the same order with
/// contiguous tensors of the same types and shapes. With host tensors a call returns when this rank's part is done;
/// with GPU tensors it is queued on the context's stream. Throws ErrorKind::peer if a rank is lost, silent, or calls a
/// different function.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sums in place, with the same bits on every rank. f32, f64, bf16 or i64; f16 and bf16 are added in f32 and rounded
  /// each time.
  virtual void all_reduce(Ctx& ctx, Tensor values, Reduction reduction) = 0;
  /// Copies the values of `root` to all ranks.
  virtual void broadcast(Ctx& ctx, Tensor values, int root) = 0;
  /// Gathers the values [n] of every rank into `all` [size, n].
  virtual void all_gather(Ctx& ctx, ConstTensor mine, Tensor all) = 0;
  /// Row r of `sent` [size, n] goes to rank r; row r of `received` is from rank r.
  virtual void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) = 0;
  /// On rank r, `sum` [n] becomes the sum over all ranks of row r of `sent` [size, n]. f32, bf16 or f16; `sum` may be
  /// the own row of `sent`. Host tensors are added in the order of the ranks, in f32 and rounded each time; GPU tensors
  /// in an order that NCCL chooses by the number of ranks and elements.
  virtual void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) = 0;
  /// Barrier between the host threads; does not wait for work queued on GPUs.
  virtual void barrier(Ctx& ctx) = 0;

  /// Starts work on this collective, which may overlap with what the caller does next. Everything is done in the order
  /// in which it was started or called. The work may pass on the caller's context but not compute with it.
  virtual Pending start(std::function<void(Collective&)> work) {
    work(*this);
    return {};
  }
  /// Prefix of its calls in timelines.
  virtual void label(const std::string& /*text*/) {}
  /// The next call between hosts exchanges data only with calls of other ranks that have the same label.
  virtual void label_next(std::uint32_t /*label*/) {}
  /// Aborts running calls with an error, here and on the other ranks. Thread-safe.
  virtual void disconnect() {}
  /// Call before this rank leaves because of an error, so that work queued on a GPU no longer waits for other ranks.
  /// Nothing may be called afterwards.
  virtual void give_up() {}
  /// A separate collective of the ranks [first, first + size), which include this one. Every rank calls it, each for
  /// its part. Must not outlive this object.
  virtual std::unique_ptr<Collective> part(int first, int size) = 0;
  /// The ranks with the same position as this one in each part of `size` ranks, as `part` does. `size` divides the
  /// number of ranks.
  virtual std::unique_ptr<Collective> counterparts(int size) = 0;
};

/// The only rank of a run.
class Solo : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(Ctx&, Tensor, Reduction) override {}
  void broadcast(Ctx&, Tensor, int) override {}
  void all_gather(Ctx& ctx, ConstTensor mine, Tensor all) override;
  void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) override;
  void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) override;
  void barrier(Ctx&) override {}
  std::unique_ptr<Collective> part(int first, int size) override;
  std::unique_ptr<Collective> counterparts(int size) override;
};

/// Whether the value is true on any rank.
bool any_rank(Ctx& ctx, Collective& ranks, bool mine);
/// The text of rank `root`.
std::string broadcast_text(Ctx& ctx, Collective& ranks, const std::string& mine, int root = 0);
/// The texts of all ranks.
std::vector<std::string> gather_texts(Ctx& ctx, Collective& ranks, std::string_view mine);

}  // namespace qtrain
