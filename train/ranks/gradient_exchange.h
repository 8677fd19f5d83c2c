#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/shards.h"
#include "model/unit_access.h"
#include "train/ranks/gradient_buckets.h"

namespace qtrain {

class ShardRanks;
class Transformer;

/// The order in which the gradients of an optimizer step's micro-batches are added.
enum class ReductionOrder : std::uint8_t {
  ranks,          ///< each rank accumulates its own, then ranks are summed: the last bits depend on the number of ranks
  micro_batches,  ///< one after another: the bits do not depend on the number of ranks
};

/// How gradients are reduced over ranks.
struct ReductionOptions {
  ReductionOrder order = ReductionOrder::ranks;
  /// Reduce a unit's gradients as soon as they are complete, while the pass continues; on a GPU on a separate stream.
  bool beside = false;
  std::int64_t bucket_bytes = std::int64_t{32} << 20;  ///< bytes of gradients reduced at once
  DType wire = DType::f32;  ///< dtype in which gradients are sent, rounded if wider: f32 or bf16
};

/// Whether exchanges can overlap with the passes of a model. Not with context parallelism on GPUs: keys are exchanged
/// at the same time, and operations of two NCCL groups must be issued in the same order on all ranks.
bool exchanges_beside(const Transformer& model);

/// Reduces the gradients of an optimizer step over the ranks and, if training state is sharded (ZeRO), gives every rank
/// the weights that it computes with. Micro-batch i of rank r is number i * ranks + r of the step.
///
/// This class decides when a bucket of gradients is reduced and cleared; subclasses say how it is reduced.
class GradientExchange : public UnitAccess {
 public:
  void enter(Ctx& ctx, const Entry& entry) override;
  void finish_gradients(Ctx& ctx, int unit) override;
  void values_changed() override {}
  /// Whether entering a unit, or completing its gradients, involves an exchange in this micro-batch.
  virtual bool acts_on(const Entry& entry) const;
  bool acts_on_gradients(int unit) const;
  /// Whether gradients of any unit are exchanged in this micro-batch.
  bool exchanges_gradients() const { return clears() || (options_.beside && is_last()); }

  /// Call before the first micro-batch of a step; `micro_batches` is their number per rank.
  void begin_step(std::int64_t micro_batches) { left_ = micro_batches; }
  /// Call after each micro-batch on every rank, even if a rank has no rows for it.
  void end_micro_batch(Ctx& ctx);
  /// Call before the update. Afterwards each rank has the summed gradients that it updates with.
  virtual void finish_step(Ctx& ctx);
  /// Call after the update if `divides`. Afterwards every rank has the updated weights.
  virtual void finish_update(Ctx& /*ctx*/) {}
  /// Whether each rank updates only a part of the parameters.
  virtual bool divides() const { return false; }

 protected:
  GradientExchange(const ReductionOptions& options, const Sharding& sharding);
  /// Replaces the buckets. They are reduced in this order if not during a pass.
  void set_buckets(std::vector<GradientBucket> buckets);
  /// Starts reducing the gradients of a bucket. With Sink::Mode::accumulate they are added to its totals.
  virtual Pending add(Ctx& ctx, const GradientBucket& bucket, Sink::Mode mode) = 0;

  std::vector<GradientBucket>& buckets() { return buckets_; }
  /// The last exchange of the bucket's memory.
  Pending& added(const GradientBucket& bucket);
  const ReductionOptions& options() const { return options_; }
  bool in_order() const { return options_.order == ReductionOrder::micro_batches; }
  /// Whether the current micro-batch is the last of the step.
  bool is_last() const { return left_ <= 1; }

 private:
  /// Whether gradients are reduced after each micro-batch during the pass, so that the next one starts from zero.
  bool clears() const { return after_each_pass_ || (options_.beside && in_order()); }
  bool waits_for_the_end() const { return !after_each_pass_ && !options_.beside; }
  void begin_adding(Ctx& ctx, const GradientBucket& bucket);
  void add_all(Ctx& ctx);
  std::size_t slot_of(int unit) const;

  ReductionOptions options_;
  bool after_each_pass_;   ///< gradients are sharded
  int buffers_;            ///< that blocks with sharded gradients take turns in
  std::int64_t left_ = 1;  ///< micro-batches left in the step, including the current one
  std::vector<GradientBucket> buckets_;
  std::vector<Pending> added_;  ///< by the last unit of a bucket or, if gradients are sharded, its buffer
};

/// The objects that a gradient exchange works on.
struct ExchangeParts {
  Transformer& model;
  Collective& ranks;               ///< all ranks of the run
  ShardRanks* division = nullptr;  ///< if the model's state is sharded
};
std::unique_ptr<GradientExchange> make_gradient_exchange(const ExchangeParts& parts, const ReductionOptions& options);
/// Bytes of device memory that make_gradient_exchange needs for a (possibly sharded) model with this many ranks.
std::size_t gradient_exchange_bytes(Transformer& model, int ranks, const ReductionOptions& options);

}  // namespace qtrain
