#pragma once
#include <memory>

#include "core/shards.h"
#include "dist/queued_collective.h"

namespace qtrain {

/// A run's ranks as sharding sees them: groups of consecutive ranks, each holding the full state. Without sharding,
/// every rank is a group. All operations go through one queue, that of `all`.
class ShardRanks {
 public:
  /// A collective call. `all` must outlive this object, and `sharding`, if there is any, must match its size.
  ShardRanks(Collective& all, const Sharding& sharding);

  Collective& all() { return all_; }
  /// The ranks that this one shares its state with.
  Collective& group() { return group_ ? *group_ : all_; }
  /// The ranks with the same shard in all groups, including this one.
  Collective& replicas() { return replicas_ ? *replicas_ : all_; }
  /// Cancels pending operations.
  void disconnect();

 private:
  Collective& all_;
  std::unique_ptr<QueuedPart> group_, replicas_;  ///< null: all ranks
};

}  // namespace qtrain
