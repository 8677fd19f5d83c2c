#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/param_store.h"
#include "train/gradient_reducer.h"
#include "train/shard_ranks.h"

namespace qtrain {

/// Moves the rows of groups of parameters between the ranks that they are divided among, on a processor beside what
/// the caller does meanwhile (see Collective::start), on a GPU on its stream. Where groups of ranks are replicas,
/// ReductionOrder::ranks adds gradients within them, and the sums of an update over them; with
/// ReductionOrder::micro_batches each replica adds a piece of every row over all ranks.
class ShardExchange {
 public:
  static constexpr std::int64_t kMaxColumns = std::int64_t{1} << 18;  ///< elements that a rank sends to another at once

  /// For the groups of these stores, which are on `device`.
  ShardExchange(ShardRanks& ranks, ReductionOrder order, std::span<const ParamStore* const> stores);
  /// Bytes of the device.
  static std::size_t bytes(ReductionOrder order, std::span<const ParamStore* const> stores);

  /// Waits for what is under way, or ends it where an error is.
  ~ShardExchange();
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  /// Every rank has all values of the group then.
  Pending gather(Ctx& ctx, const ShardGroup& group);
  /// Adds the gradients of ranks in the order of the ranks, each rank its own row: to what is there or instead of it.
  Pending reduce(Ctx& ctx, const ShardGroup& group, Sink::Mode mode);
  /// After the last one of an update: the own row has the sums over all ranks then.
  Pending settle(Ctx& ctx, const ShardGroup& group);

 private:
  Pending start(Collective& ranks, std::function<void(Collective&)> work);
  bool adds_pieces() const { return order_ == ReductionOrder::micro_batches; }

  ShardRanks& ranks_;
  ReductionOrder order_;
  DeviceMemory memory_;
  Pending last_;
};

}  // namespace qtrain
