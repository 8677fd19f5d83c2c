#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/param_store.h"
#include "train/ranks/exchange_queue.h"
#include "train/ranks/gradient_exchange.h"
#include "train/ranks/shard_ranks.h"

namespace qtrain {

/// Moves shards of parameter groups between ranks by an ExchangeQueue. With replicas, ReductionOrder::ranks reduces
/// gradients within each group and, once per update, across replicas; ReductionOrder::micro_batches lets each replica
/// reduce a piece of every row over all ranks. Gradients rounded for sending are summed in the gradient dtype, except
/// by NCCL.
class ShardExchange {
 public:
  struct Options {
    Device device;
    ReductionOrder order = ReductionOrder::ranks;
    DType wire = DType::f32;  ///< bf16: wider gradients are rounded to it for sending
    bool beside = false;      ///< see ExchangeQueue
  };
  /// For the groups of these stores, which are on the device.
  ShardExchange(ShardRanks& ranks, const Options& options, std::span<const ParamStore* const> stores);
  /// Bytes of device memory that this needs.
  static std::size_t bytes(const Options& options, std::span<const ParamStore* const> stores);
  /// The most elements sent to each of `ranks` ranks at once without reduce_scatter. More on GPUs, where the hosts
  /// synchronize on every call.
  static std::int64_t max_columns(Device device, int ranks);
  /// Whether the group's gradients are reduced by Collective::reduce_scatter: on GPUs without a prescribed order.
  static bool scatters(const Options& options, const ShardGroup& group);
  /// The dtype in which the group's gradients are sent, and whether they are rounded to it.
  static DType wire_of(const Options& options, const ShardGroup& group);
  static bool rounds(const Options& options, const ShardGroup& group);
  /// Whether an update's sums are rounded to Options::wire when they are exchanged between replicas.
  static bool rounds_sums(const Options& options, const ShardGroup& group);

  /// The gradients of a trained group. The totals are those of the elements that this rank sums.
  GradientBucket bucket_of(const ShardGroup& group) const;
  /// All-gathers the values of the group.
  Pending gather(Ctx& ctx, const ShardGroup& group);
  /// Reduces gradients over ranks, each rank its own row, accumulating or overwriting according to `mode`. Uses rank
  /// order, except for reduce_scatter, which without rounding also overwrites the gradients.
  Pending reduce(Ctx& ctx, const GradientBucket& bucket, Sink::Mode mode);
  /// After the last micro-batch of an update: completes the own row's sums over all ranks.
  Pending settle(Ctx& ctx, const ShardGroup& group);
  /// Copies the own row from the first replica; it must be on the device.
  Pending replicate(Ctx& ctx, const ShardGroup& group);

 private:
  Messages messages_for(const ShardGroup& group, const GradientParts& parts) const;
  void add_replicas(Ctx& ctx, Collective& replicas, const ShardGroup& group) const;
  bool adds_pieces() const { return options_.order == ReductionOrder::micro_batches; }

  ShardRanks& ranks_;
  Options options_;
  DeviceMemory memory_;
  ExchangeQueue queue_;
};

}  // namespace qtrain
