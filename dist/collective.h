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

/// Work that may still be under way; a default one is done.
class Pending {
 public:
  Pending() = default;
  explicit Pending(std::shared_future<void> done) : wait_([done = std::move(done)] { done.get(); }) {}
  /// `wait` as below; it may be called again.
  explicit Pending(std::function<void()> wait) : wait_(std::move(wait)) {}
  /// Until it is done. Throws what it has thrown. For work of a stream beside that of a context it is the context's
  /// stream that waits, and not the host.
  void wait() const {
    if (wait_) wait_();
  }

 private:
  std::function<void()> wait_;
};

/// What the processes of a run (ranks) do together. Every rank calls the same functions in the same order with tensors
/// of the same types and shapes. Tensors are contiguous. With tensors of the host a call returns when this rank's part
/// is done; with those of a GPU it is queued on the context's stream. Errors: ErrorKind::peer where a rank is lost,
/// silent, or does something else.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// In place, the same bits on every rank. f32, f64, bf16 or i64; f16 and bf16 are added in f32 and rounded each time.
  virtual void all_reduce(Ctx& ctx, Tensor values, Reduction reduction) = 0;
  /// Everybody has the values of `root` then.
  virtual void broadcast(Ctx& ctx, Tensor values, int root) = 0;
  /// all [size, n]: the values [n] of every rank.
  virtual void all_gather(Ctx& ctx, ConstTensor mine, Tensor all) = 0;
  /// Row r of `sent` [size, n] goes to rank r; row r of `received` is from rank r.
  virtual void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) = 0;
  /// sum [n]: those of row r of `sent` [size, n] over all ranks, for rank r. f32, bf16 or f16; `sum` may be the own row
  /// of `sent`. Tensors of the host are added in the order of the ranks, in f32 and rounded each time; those of a GPU
  /// in an order that NCCL chooses for so many ranks and elements.
  virtual void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) = 0;
  /// Barrier between the host threads; does not wait for work queued on GPUs.
  virtual void barrier(Ctx& ctx) = 0;

  /// Begins work on this collective, which may go on beside what the caller does next. Everything is done in the order
  /// in which it was begun or called. The work may hand on the caller's context, not compute with it.
  virtual Pending start(std::function<void(Collective&)> work) {
    work(*this);
    return {};
  }
  /// What its calls begin with in timelines.
  virtual void label(const std::string& /*text*/) {}
  /// The next call between hosts exchanges data only with calls of other ranks that have the same label.
  virtual void label_next(std::uint32_t /*label*/) {}
  /// Lets what is under way end with an error, here and on the other ranks; from any thread.
  virtual void disconnect() {}
  /// Before this rank leaves for an error: what is queued on a GPU no longer waits there for other ranks. Nothing can
  /// be called any more.
  virtual void give_up() {}
  /// The ranks [first, first + size), which this one is among, as a collective of their own. Every rank calls it, each
  /// for its part; must be outlived by this.
  virtual std::unique_ptr<Collective> part(int first, int size) = 0;
  /// Those that have the place of this one in parts of `size` ranks, one of each, as part. `size` divides that of all.
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

/// The sum of a number over all ranks.
double sum_over_ranks(Ctx& ctx, Collective& ranks, double value);
/// Whether any rank says yes.
bool any_rank(Ctx& ctx, Collective& ranks, bool mine);
/// The text of rank `root`.
std::string broadcast_text(Ctx& ctx, Collective& ranks, const std::string& mine, int root = 0);
/// The texts of all ranks.
std::vector<std::string> gather_texts(Ctx& ctx, Collective& ranks, std::string_view mine);

}  // namespace qtrain
