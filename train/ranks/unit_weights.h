#pragma once
#include <span>
#include <vector>

#include "core/param_store.h"
#include "model/unit_access.h"
#include "train/ranks/exchange_queue.h"
#include "train/ranks/shard_ranks.h"

namespace qtrain {

/// Gathers the values of sharded parameters from the ranks of a group: if weights are sharded, before a pass reads a
/// unit and while other units are computed; otherwise after the update.
class UnitWeights {
 public:
  using Stores = std::span<const ParamStore* const>;
  /// The stores must be sharded in the same way among these ranks.
  UnitWeights(ShardRanks& ranks, ExchangeQueue& queue, Stores stores);

  /// See UnitAccess.
  void enter(Ctx& ctx, const UnitAccess::Entry& entry);
  void values_changed();
  /// Gives every rank the updated values that it keeps.
  void finish_update(Ctx& ctx);

 private:
  /// A buffer for an unsharded unit.
  struct Buffer {
    int unit = UnitAccess::kNoUnit;  ///< unit whose values are in the buffer or on their way
    Pending gathered;                ///< pending gather of its values
  };

  const Sharding& sharding() const { return stores_.front()->sharding(); }
  Buffer& buffer_for(int unit);
  void fetch(Ctx& ctx, int unit);
  Pending gather(Ctx& ctx, const ShardGroup& group);
  Pending replicate(Ctx& ctx, const ShardGroup& group);

  ShardRanks& ranks_;
  ExchangeQueue& queue_;
  std::vector<const ParamStore*> stores_;
  std::vector<Buffer> buffers_;
};

/// Gathers the values of a group from the ranks, each of which has one row.
void gather_rows(Ctx& ctx, Collective& ranks, const ShardGroup& group);

}  // namespace qtrain
