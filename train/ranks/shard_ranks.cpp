#include "train/ranks/shard_ranks.h"

namespace qtrain {

ShardRanks::ShardRanks(Collective& all, const Sharding& sharding) : all_(all) {
  const int size = sharding.ranks;
  check(size * sharding.replicas == all.size(), "the sharding does not match the number of ranks");
  if (sharding.replicas > 1) group_ = std::make_unique<QueuedPart>(all, all.part(all.rank() / size * size, size));
  replicas_ =
      std::make_unique<QueuedPart>(all, sharding.replicas > 1 ? all.counterparts(size) : std::make_unique<Solo>());
}

void ShardRanks::disconnect() {
  all_.disconnect();
  if (group_) group_->disconnect();
  replicas_->disconnect();
}

}  // namespace qtrain
