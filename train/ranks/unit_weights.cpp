#include "train/ranks/unit_weights.h"

#include "core/timeline.h"
#include "train/ranks/gradient_buckets.h"

namespace qtrain {

void gather_rows(Ctx& ctx, Collective& ranks, const ShardGroup& group) {
  if (group.is_even()) {
    Tensor mine = group.own_values;
    if (mine.device.kind != group.values.device.kind) {  // the shard is on the host
      mine = group.values.slice(group.row_begin(ranks.rank()), group.row_size(ranks.rank()));
      copy_alone(ctx, mine, group.own_values);
    }
    return ranks.all_gather(ctx, mine, group.values);
  }
  for (int r = 0; r < ranks.size(); ++r) {
    if (group.row_size(r) == 0) continue;
    const Tensor row = group.values.slice(group.row_begin(r), group.row_size(r));
    if (r == ranks.rank() && row.data != group.own_values.data) copy_alone(ctx, row, group.own_values);
    ranks.broadcast(ctx, row, r);
  }
}

UnitWeights::UnitWeights(ShardRanks& ranks, ExchangeQueue& queue, Stores stores)
    : ranks_(ranks),
      queue_(queue),
      stores_(stores.begin(), stores.end()),
      buffers_(static_cast<std::size_t>(1 + sharding().buffers)) {}

UnitWeights::Buffer& UnitWeights::buffer_for(int unit) {
  return buffers_[static_cast<std::size_t>(buffer_of(unit, sharding().buffers))];
}

Pending UnitWeights::gather(Ctx& ctx, const ShardGroup& group) {
  return queue_.start(ctx, ranks_.group(), [&group](Ctx& c, Collective& ranks) { gather_rows(c, ranks, group); });
}

// Starts gathering the values of a unit, unless its buffer already has them.
void UnitWeights::fetch(Ctx& ctx, int unit) {
  Buffer& buffer = buffer_for(unit);
  if (buffer.unit == unit) return;
  buffer.unit = unit;
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups_of(unit)) buffer.gathered = gather(ctx, group);
}

void UnitWeights::enter(Ctx& ctx, const UnitAccess::Entry& entry) {
  if (!sharding().divides_weights()) return;
  const Buffer& buffer = buffer_for(entry.unit);
  fetch(ctx, entry.unit);
  if (entry.next != UnitAccess::kNoUnit && &buffer_for(entry.next) != &buffer) fetch(ctx, entry.next);
  const timeline::Span span("wait for weights");
  buffer.gathered.wait();
}

void UnitWeights::values_changed() {
  for (Buffer& buffer : buffers_) {
    buffer.gathered.wait();
    buffer.unit = UnitAccess::kNoUnit;
  }
}

// Copies the own row from the first replica.
Pending UnitWeights::replicate(Ctx& ctx, const ShardGroup& group) {
  return queue_.start(ctx, ranks_.replicas(),
                      [&group](Ctx& c, Collective& replicas) { replicas.broadcast(c, group.own_values, 0); });
}

// If replicas compute differently, they copy parameters that are not split from the first one.
void UnitWeights::finish_update(Ctx& ctx) {
  values_changed();
  const bool differ = ranks_.replicas().size() > 1 && !sharding().replicas_agree;
  Pending all;
  const auto for_trained = [&](const auto& start) {
    for (const ParamStore* store : stores_)
      for (const ShardGroup& group : store->groups())
        if (group.trained()) start(group);
  };
  for_trained([&](const ShardGroup& group) {
    if (differ && group.cut == Cut::never && group.own_values.numel() > 0) all = replicate(ctx, group);
  });
  if (!sharding().divides_weights()) for_trained([&](const ShardGroup& group) { all = gather(ctx, group); });
  all.wait();
}

}  // namespace qtrain
