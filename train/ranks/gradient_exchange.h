#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/unit_access.h"
#include "train/ranks/exchange_queue.h"
#include "train/ranks/gradient_sums.h"
#include "train/ranks/shard_ranks.h"
#include "train/ranks/unit_weights.h"

namespace qtrain {

class Transformer;

/// Whether exchanges can overlap with the passes of a model. Not with context parallelism on GPUs: keys are exchanged
/// at the same time, and operations of two NCCL groups must be issued in the same order on all ranks.
bool exchanges_beside(const Transformer& model);

/// Reduces the gradients of an optimizer step over the ranks and, if training state is sharded (ZeRO), gives every rank
/// the weights that it computes with. Micro-batch i of rank r is number i * ranks + r of the step.
///
/// This class decides when a bucket of gradients is reduced and cleared. GradientSums adds them, and UnitWeights
/// gathers weights.
class GradientExchange : public UnitAccess {
 public:
  using Stores = GradientSums::Stores;
  /// The stores must have their memory, and must be sharded in the same way among these ranks.
  GradientExchange(ShardRanks& ranks, const ReductionOptions& options, Stores stores);
  /// Bytes of device memory that this needs for declared stores in a run of `ranks` ranks.
  static std::size_t bytes(int ranks, const ReductionOptions& options, Stores stores);

  void enter(Ctx& ctx, const Entry& entry) override;
  void finish_gradients(Ctx& ctx, int unit) override;
  void values_changed() override { weights_.values_changed(); }
  /// Whether entering a unit, or completing its gradients, involves an exchange in this micro-batch.
  bool acts_on(const Entry& entry) const;
  bool acts_on_gradients(int unit) const;
  /// Whether gradients of any unit are exchanged during the passes of this micro-batch.
  bool exchanges_gradients() const { return during_passes() && (each_micro_batch() || is_last()); }

  /// Call before the first micro-batch of a step; `micro_batches` is their number per rank.
  void begin_step(std::int64_t micro_batches) { left_ = micro_batches; }
  /// Call after each micro-batch on every rank, even if a rank has no rows for it.
  void end_micro_batch(Ctx& ctx);
  /// Call before the update. Afterwards each rank has the summed gradients that it updates with.
  void finish_step(Ctx& ctx);
  /// Call after the update if `divides`. Afterwards every rank has the updated weights.
  void finish_update(Ctx& ctx) { weights_.finish_update(ctx); }
  /// Whether each rank updates only a part of the parameters.
  bool divides() const { return sums_.sharding().divides_trained(); }

 private:
  /// Whether buckets are exchanged during passes instead of after them, and for each micro-batch, so that the next one
  /// starts from zero, instead of for the last one only. With sharded gradients both hold, since units share memory.
  bool during_passes() const { return sums_.sharding().divides_gradients() || beside_; }
  bool each_micro_batch() const { return sums_.sharding().divides_gradients() || sums_.in_order(); }
  /// Whether the current micro-batch is the last of the step.
  bool is_last() const { return left_ <= 1; }
  void exchange(Ctx& ctx, const GradientBucket& bucket);
  Pending share(Ctx& ctx, const GradientBucket& bucket);
  void exchange_all(Ctx& ctx);
  std::size_t slot_of(const GradientBucket& bucket) const;

  ShardRanks& ranks_;
  bool beside_;
  std::int64_t left_ = 1;  ///< micro-batches left in the step, including the current one
  GradientSums sums_;
  std::vector<Pending> exchanged_;  ///< by the last unit of a bucket or, if gradients are sharded, its buffer
  ExchangeQueue queue_;
  UnitWeights weights_;
};

}  // namespace qtrain
