#pragma once
#include <memory>

#include "core/shards.h"
#include "dist/queued_collective.h"

namespace qtrain {

/// The ranks of a run as those that divide states see them: groups of consecutive ranks, each of which has all of the
/// states. Everything is done in one queue, that of `all`.
class ShardRanks {
 public:
  /// Every rank calls it. `all` must outlive this; the sharding is of so many ranks.
  ShardRanks(Collective& all, const Sharding& sharding);

  Collective& all() { return all_; }
  /// Those that this one divides its states with.
  Collective& group() { return group_ ? *group_ : all_; }
  /// Those that own the same part in the other groups, and this one.
  Collective& replicas() { return *replicas_; }
  /// Ends what is under way.
  void disconnect();

 private:
  Collective& all_;
  std::unique_ptr<QueuedPart> group_;  ///< null: all of them
  std::unique_ptr<QueuedPart> replicas_;
};

}  // namespace qtrain
