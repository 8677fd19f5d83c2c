#include "train/ranks/divided_model.h"

#include <algorithm>
#include <utility>

#include "core/timeline.h"
#include "kernels/elementwise.h"

namespace qtrain {
namespace {

// The elements that each rank reduces: every row is split into equal pieces, one per participating replica. Rank j of
// replica k reduces piece k of row j.
GradientParts parts_of(const ShardGroup& group, int replicas) {
  GradientParts parts{
      .gradient = group.grads, .row = (group.longest_row() + replicas - 1) / replicas, .unit = group.unit};
  const int ranks = group.ranks();
  for (int r = 0; r < ranks * replicas; ++r) {
    const std::int64_t row = group.row_size(r % ranks), begin = std::min(row, r / ranks * parts.row);
    parts.of_rank.push_back({group.row_begin(r % ranks) + begin, std::min(parts.row, row - begin)});
  }
  return parts;
}

/// Buffers for one exchange that reduces a group's gradients.
struct StagedRows {
  Shape shape;  ///< ranks, and elements of a row per exchange
  DType wire;
  bool receives;      ///< needs a receive buffer; reduce_scatter returns sums in the send buffer
  bool sends_copies;  ///< gradients cannot be sent in place

  StagedRows(const GroupReduction& how, Device device, const GradientParts& parts)
      : wire(how.wire), receives(!how.scatters) {
    const auto ranks = std::ssize(parts.of_rank);
    const std::int64_t columns = std::min(parts.row, GroupReduction::max_columns(device, static_cast<int>(ranks)));
    shape = {ranks, columns};
    sends_copies = how.rounds || !parts.are_rows() || columns < parts.row;
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(shape.numel() * (sends_copies + receives)) * size_of(wire);
  }
};

// Row length for exchanging an update's rounded sums between replicas.
std::int64_t replica_row(Device device, const ShardGroup& group, int replicas) {
  return std::min((group.longest_row() + replicas - 1) / replicas, GroupReduction::max_columns(device, replicas));
}

std::size_t staging_bytes(const ReductionOptions& options, Device device, DividedModel::Stores stores) {
  std::size_t most = 0;
  for (const ParamStore* store : stores)
    for (const ShardGroup& group : store->groups()) {
      if (!group.trained()) continue;
      const int replicas = store->sharding().replicas;
      const GroupReduction how(device, options, group);
      const bool pieces = options.order == ReductionOrder::micro_batches;
      if (!how.in_place())
        most = std::max(most, StagedRows(how, device, parts_of(group, pieces ? replicas : 1)).bytes());
      if (how.rounds_sums && replicas > 1)
        most = std::max(most, static_cast<std::size_t>(2 * replicas * replica_row(device, group, replicas)) *
                                  size_of(options.wire));
    }
  return most;
}

// Adds the previous sums to the own row before sending, which saves memory and an addition afterwards.
void scatter_sums(Ctx& ctx, Collective& ranks, const ShardGroup& group, Sink::Mode mode) {
  const int rank = ranks.rank();
  const Tensor row = group.grads.slice(group.row_begin(rank), group.row_size(rank));
  if (mode == Sink::Mode::accumulate) ops::copy(ctx, {.y = accumulate(row), .x = group.own_grads});
  ranks.reduce_scatter(ctx, group.grads, group.own_grads);
}

// Exchanges the pieces of the own row that each replica has summed.
void gather_pieces(Ctx& ctx, Collective& replicas, const ShardGroup& group, int rank) {
  const GradientParts parts = parts_of(group, replicas.size());
  for (int k = 0; k < replicas.size(); ++k) {
    const ElementRange piece = parts.of_rank[static_cast<std::size_t>(k * group.ranks() + rank)];
    if (piece.count == 0) continue;
    replicas.broadcast(ctx, group.own_grads.slice(piece.begin - group.row_begin(rank), piece.count), k);
  }
}

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

}  // namespace

// A rank alone in its group sends nothing, but with micro_batches order it must produce the same bits as several ranks.
GroupReduction::GroupReduction(Device device, const ReductionOptions& options, const ShardGroup& group) {
  const bool by_ranks = options.order == ReductionOrder::ranks, alone = group.ranks() == 1 && by_ranks;
  const bool is_wider = options.wire == DType::bf16 && size_of(*group.grad_dtype) > size_of(options.wire);
  rounds = is_wider && !alone;
  rounds_sums = is_wider && by_ranks;
  wire = rounds ? options.wire : *group.grad_dtype;
  scatters = device.kind == DeviceKind::cuda && by_ranks && group.is_even();
}

std::int64_t GroupReduction::max_columns(Device device, int ranks) {
  constexpr std::int64_t kOnHost = std::int64_t{1} << 18, kOfAllRanks = std::int64_t{1} << 24;
  return device.kind == DeviceKind::cuda ? std::max(kOnHost, kOfAllRanks / ranks) : kOnHost;
}

DividedModel::DividedModel(ShardRanks& ranks, const ReductionOptions& options, Device device, Stores stores)
    : GradientExchange(options, stores.front()->sharding()),
      ranks_(ranks),
      device_(device),
      stores_(stores.begin(), stores.end()),
      buffers_(static_cast<std::size_t>(1 + sharding().buffers)),
      queue_(device, options.beside, [&ranks] { ranks.disconnect(); }) {
  if (const std::size_t n = staging_bytes(options, device, stores); n > 0)
    memory_ = DeviceMemory(device, n, "gradient exchange buffers");
  std::vector<GradientBucket> buckets;
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups())
      if (group.trained()) buckets.push_back(bucket_of(group));
  set_buckets(std::move(buckets));
}

std::size_t DividedModel::bytes(const ReductionOptions& options, Device device, Stores stores) {
  return staging_bytes(options, device, stores) + ExchangeQueue::bytes(device, options.beside);
}

// The totals are those of the elements that this rank sums.
GradientBucket DividedModel::bucket_of(const ShardGroup& group) const {
  const Collective& ranks = adding_ranks();
  GradientBucket bucket;
  bucket.add(parts_of(group, ranks.size() / group.ranks()));
  const ElementRange own = bucket.parts.front().of_rank[static_cast<std::size_t>(ranks.rank())];
  bucket.totals = group.own_grads.slice(own.begin - group.row_begin(ranks.rank() % group.ranks()), own.count);
  bucket.group = &group;
  return bucket;
}

DividedModel::Buffer& DividedModel::buffer_for(int unit) {
  return buffers_[static_cast<std::size_t>(buffer_of(unit, sharding().buffers))];
}

Pending DividedModel::gather(Ctx& ctx, const ShardGroup& group) {
  return queue_.start(ctx, ranks_.group(), [&group](Ctx& c, Collective& ranks) { gather_rows(c, ranks, group); });
}

// Starts gathering the values of a unit, unless its buffer already has them.
void DividedModel::fetch(Ctx& ctx, int unit) {
  Buffer& buffer = buffer_for(unit);
  if (buffer.unit == unit) return;
  buffer.unit = unit;
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups_of(unit)) buffer.gathered = gather(ctx, group);
}

void DividedModel::enter(Ctx& ctx, const Entry& entry) {
  Buffer& buffer = buffer_for(entry.unit);
  if (sharding().divides_weights()) {
    fetch(ctx, entry.unit);
    if (entry.next != kNoUnit && &buffer_for(entry.next) != &buffer) fetch(ctx, entry.next);
    const timeline::Span span("wait for weights");
    buffer.gathered.wait();
  }
  GradientExchange::enter(ctx, entry);
}

// Within the ranks of a group, and after the last micro-batch across replicas.
Pending DividedModel::add(Ctx& ctx, const GradientBucket& bucket, Sink::Mode mode) {
  const Pending added = reduce(ctx, bucket, mode);
  if (!is_last() || ranks_.replicas().size() == 1) return added;
  return queue_.start(ctx, ranks_.replicas(),
                      [this, &bucket](Ctx& c, Collective& replicas) { settle(c, replicas, *bucket.group); });
}

// In rank order, except by reduce_scatter, which in place also overwrites the gradients.
Pending DividedModel::reduce(Ctx& ctx, const GradientBucket& bucket, Sink::Mode mode) {
  return queue_.start(ctx, adding_ranks(), [this, &bucket, mode](Ctx& c, Collective& ranks) {
    const GroupReduction how(device_, options(), *bucket.group);
    if (how.in_place()) return scatter_sums(c, ranks, *bucket.group, mode);
    qtrain::reduce(c, ranks, bucket,
                   {.sum = bucket.totals, .mode = mode, .memory = messages_for(bucket), .scatters = how.scatters});
  });
}

Messages DividedModel::messages_for(const GradientBucket& bucket) const {
  const StagedRows rows({device_, options(), *bucket.group}, device_, bucket.parts.front());
  Messages m{.sent = {nullptr, rows.wire, rows.shape, device_}, .received = m.sent};
  if (rows.receives) m.received.data = memory_.data();
  if (rows.sends_copies) m.sent.data = memory_.data() + (rows.receives ? m.received.bytes() : 0);
  return m;
}

// Completes the sums of the own row over all ranks.
void DividedModel::settle(Ctx& ctx, Collective& replicas, const ShardGroup& group) const {
  if (in_order()) return gather_pieces(ctx, replicas, group, ranks_.group().rank());
  if (group.own_grads.numel() == 0) return;
  if (!GroupReduction(device_, options(), group).rounds_sums)
    return replicas.all_reduce(ctx, group.own_grads, Reduction::sum);
  const std::int64_t n = replicas.size(), row = replica_row(device_, group, replicas.size());
  const Tensor both{memory_.data(), options().wire, {2 * n, row}, device_};
  GradientBucket bucket;
  bucket.add(GradientParts::even(group.own_grads, replicas.size()));
  all_reduce(ctx, replicas, bucket, {both.slice(0, n), both.slice(n, n)});
}

void DividedModel::values_changed() {
  for (Buffer& buffer : buffers_) {
    buffer.gathered.wait();
    buffer.unit = kNoUnit;
  }
}

// Copies the own rows from the first replica.
void DividedModel::replicate(Ctx& ctx) {
  Pending all;
  for (const GradientBucket& bucket : buckets())
    if (const Tensor& own = bucket.group->own_values; bucket.group->cut == Cut::never && own.numel() > 0)
      all =
          queue_.start(ctx, ranks_.replicas(), [&own](Ctx& c, Collective& replicas) { replicas.broadcast(c, own, 0); });
  all.wait();
}

void DividedModel::finish_update(Ctx& ctx) {
  values_changed();
  if (ranks_.replicas().size() > 1 && !sharding().replicas_agree) replicate(ctx);
  if (sharding().divides_weights()) return;
  Pending all;
  for (const GradientBucket& bucket : buckets()) all = gather(ctx, *bucket.group);
  all.wait();
}

}  // namespace qtrain
