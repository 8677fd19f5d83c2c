#pragma once
#include <span>
#include <vector>

#include "core/param_store.h"
#include "train/ranks/exchange_queue.h"
#include "train/ranks/gradient_exchange.h"
#include "train/ranks/shard_ranks.h"

namespace qtrain {

/// How the gradients of a sharded group are reduced.
struct GroupReduction {
  DType wire;        ///< dtype in which gradients are sent
  bool rounds;       ///< they are rounded to it
  bool rounds_sums;  ///< an update's sums are rounded to ReductionOptions::wire when replicas exchange them
  bool scatters;     ///< by Collective::reduce_scatter: on GPUs without a prescribed order

  GroupReduction(Device device, const ReductionOptions& options, const ShardGroup& group);
  /// NCCL adds the gradients where they are.
  bool in_place() const { return scatters && !rounds; }
  /// The most elements sent to each of `ranks` ranks at once, unless in place. More on GPUs, where the hosts
  /// synchronize on every call.
  static std::int64_t max_columns(Device device, int ranks);
};

/// Gradient exchange for a model with sharded state, which also all-gathers the units that passes read, beside the
/// computation of other units. With replicas, ReductionOrder::ranks reduces gradients within each group and, once per
/// update, across replicas; ReductionOrder::micro_batches lets each replica reduce a piece of every row over all ranks.
/// Gradients rounded for sending are summed in the gradient dtype, except by NCCL.
class DividedModel : public GradientExchange {
 public:
  using Stores = std::span<const ParamStore* const>;
  /// The stores are on the device and sharded in the same way, among these ranks.
  DividedModel(ShardRanks& ranks, const ReductionOptions& options, Device device, Stores stores);
  /// Bytes of device memory needed besides the parameters.
  static std::size_t bytes(const ReductionOptions& options, Device device, Stores stores);

  void enter(Ctx& ctx, const Entry& entry) override;
  void values_changed() override;
  bool acts_on(const Entry& entry) const override {
    return sharding().divides_weights() || GradientExchange::acts_on(entry);
  }
  void finish_update(Ctx& ctx) override;
  bool divides() const override { return true; }

 private:
  /// A buffer for an unsharded unit.
  struct Buffer {
    int unit = kNoUnit;  ///< unit whose values are in the buffer or on their way
    Pending gathered;    ///< pending gather of its values
  };

  const Sharding& sharding() const { return stores_.front()->sharding(); }
  /// The ranks that add the gradients of a micro-batch.
  Collective& adding_ranks() const { return in_order() ? ranks_.all() : ranks_.group(); }
  Buffer& buffer_for(int unit);
  GradientBucket bucket_of(const ShardGroup& group) const;
  Pending gather(Ctx& ctx, const ShardGroup& group);
  void fetch(Ctx& ctx, int unit);
  Pending add(Ctx& ctx, const GradientBucket& bucket, Sink::Mode mode) override;
  Pending reduce(Ctx& ctx, const GradientBucket& bucket, Sink::Mode mode);
  Messages messages_for(const GradientBucket& bucket) const;
  void settle(Ctx& ctx, Collective& replicas, const ShardGroup& group) const;
  void replicate(Ctx& ctx);

  ShardRanks& ranks_;
  Device device_;
  std::vector<const ParamStore*> stores_;
  std::vector<Buffer> buffers_;
  DeviceMemory memory_;
  ExchangeQueue queue_;
};

}  // namespace qtrain
