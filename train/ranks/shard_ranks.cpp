#include "train/ranks/shard_ranks.h"

namespace qtrain {

ShardRanks::ShardRanks(Collective& all, const Sharding& sharding) : all_(all) {
  const auto part_of = [&](std::unique_ptr<Collective> ranks) {
    return std::make_unique<QueuedPart>(all, std::move(ranks));
  };
  if (!sharding.divides_trained()) {
    group_ = part_of(std::make_unique<Solo>());
    return;
  }
  const int size = sharding.ranks;
  check(size * sharding.replicas == all.size(), "the sharding does not match the number of ranks");
  if (sharding.replicas > 1) group_ = part_of(all.part(all.rank() / size * size, size));
  replicas_ = part_of(sharding.replicas > 1 ? all.counterparts(size) : std::make_unique<Solo>());
}

void ShardRanks::disconnect() {
  all_.disconnect();
  for (QueuedPart* part : {group_.get(), replicas_.get()})
    if (part) part->disconnect();
}

}  // namespace qtrain
