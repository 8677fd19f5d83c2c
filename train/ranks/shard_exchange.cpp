#include "train/ranks/shard_exchange.h"

#include <algorithm>

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

/// Buffer sizes for one exchange that reduces a group's gradients.
struct StagedRows {
  std::int64_t columns;  ///< elements of a row per exchange
  bool sends_copies;     ///< gradients cannot be sent in place
  bool receives;         ///< needs a receive buffer; reduce_scatter returns sums in the send buffer

  StagedRows(const ShardExchange::Options& options, const ShardGroup& group, const GradientParts& parts)
      : columns(
            std::min(parts.row, ShardExchange::max_columns(options.device, static_cast<int>(parts.of_rank.size())))),
        sends_copies(ShardExchange::rounds(options, group) || !parts.are_rows() || columns < parts.row),
        receives(!ShardExchange::scatters(options, group)) {}
};

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

// Whether the group's gradients are wider than the wire dtype.
bool is_wider(const ShardExchange::Options& options, const ShardGroup& group) {
  return options.wire == DType::bf16 && size_of(*group.grad_dtype) > size_of(options.wire);
}

// Buffer elements for reducing a group's gradients among `replicas` replicas.
std::int64_t staged_elements(const ShardExchange::Options& options, const ShardGroup& group, int replicas) {
  if (ShardExchange::scatters(options, group) && !ShardExchange::rounds(options, group)) return 0;
  const GradientParts parts = parts_of(group, options.order == ReductionOrder::micro_batches ? replicas : 1);
  const StagedRows rows(options, group, parts);
  return static_cast<std::int64_t>(parts.of_rank.size()) * rows.columns * (rows.sends_copies + rows.receives);
}

// Row length for exchanging an update's rounded sums between replicas; 0 if none are rounded.
std::int64_t replica_row(const ShardExchange::Options& options, const ShardGroup& group, int replicas) {
  if (!ShardExchange::rounds_sums(options, group) || replicas == 1) return 0;
  return std::min((group.longest_row() + replicas - 1) / replicas,
                  ShardExchange::max_columns(options.device, replicas));
}

std::size_t staging_bytes(const ShardExchange::Options& options, std::span<const ParamStore* const> stores) {
  std::size_t most = 0;
  for (const ParamStore* store : stores)
    for (const ShardGroup& group : store->groups()) {
      if (!group.trained()) continue;
      const int replicas = store->sharding().replicas;
      const std::int64_t staged = staged_elements(options, group, replicas);
      const std::int64_t sums = 2 * replicas * replica_row(options, group, replicas);
      most = std::max({most, static_cast<std::size_t>(staged) * size_of(ShardExchange::wire_of(options, group)),
                       static_cast<std::size_t>(sums) * size_of(options.wire)});
    }
  return most;
}

}  // namespace

ShardExchange::ShardExchange(ShardRanks& ranks, const Options& options, std::span<const ParamStore* const> stores)
    : ranks_(ranks), options_(options), queue_(options.device, options.beside, [&ranks] { ranks.disconnect(); }) {
  if (const std::size_t n = staging_bytes(options, stores); n > 0)
    memory_ = DeviceMemory(options.device, n, "gradient exchange buffers");
}

std::int64_t ShardExchange::max_columns(Device device, int ranks) {
  constexpr std::int64_t kOnHost = std::int64_t{1} << 18, kOfAllRanks = std::int64_t{1} << 24;
  return device.kind == DeviceKind::cuda ? std::max(kOnHost, kOfAllRanks / ranks) : kOnHost;
}

bool ShardExchange::scatters(const Options& options, const ShardGroup& group) {
  return options.device.kind == DeviceKind::cuda && options.order == ReductionOrder::ranks && group.is_even();
}

DType ShardExchange::wire_of(const Options& options, const ShardGroup& group) {
  return rounds(options, group) ? options.wire : *group.grad_dtype;
}

// A rank alone in its group sends nothing, but with micro_batches order it must produce the same bits as several ranks.
bool ShardExchange::rounds(const Options& options, const ShardGroup& group) {
  const bool alone = group.rows.size() == 2 && options.order == ReductionOrder::ranks;
  return !alone && is_wider(options, group);
}

bool ShardExchange::rounds_sums(const Options& options, const ShardGroup& group) {
  return options.order == ReductionOrder::ranks && is_wider(options, group);
}

std::size_t ShardExchange::bytes(const Options& options, std::span<const ParamStore* const> stores) {
  return staging_bytes(options, stores) + ExchangeQueue::bytes(options.device, options.beside);
}

Pending ShardExchange::gather(Ctx& ctx, const ShardGroup& group) {
  return queue_.start(ctx, ranks_.group(), [&group](Ctx& c, Collective& ranks) { gather_rows(c, ranks, group); });
}

GradientBucket ShardExchange::bucket_of(const ShardGroup& group) const {
  const Collective& ranks = adds_pieces() ? ranks_.all() : ranks_.group();
  GradientBucket bucket;
  bucket.add(parts_of(group, ranks.size() / group.ranks()));
  const ElementRange own = bucket.parts.front().of_rank[static_cast<std::size_t>(ranks.rank())];
  bucket.totals = group.own_grads.slice(own.begin - group.row_begin(ranks.rank() % group.ranks()), own.count);
  bucket.group = &group;
  return bucket;
}

Pending ShardExchange::reduce(Ctx& ctx, const GradientBucket& bucket, Sink::Mode mode) {
  const ShardGroup& group = *bucket.group;
  const bool scattered = scatters(options_, group);
  if (scattered && !rounds(options_, group))
    return queue_.start(ctx, ranks_.group(),
                        [&group, mode](Ctx& c, Collective& ranks) { scatter_sums(c, ranks, group, mode); });
  return queue_.start(ctx, adds_pieces() ? ranks_.all() : ranks_.group(),
                      [=, this, &bucket](Ctx& c, Collective& ranks) {
                        qtrain::reduce(c, ranks, bucket,
                                       {.sum = bucket.totals,
                                        .mode = mode,
                                        .memory = messages_for(*bucket.group, bucket.parts.front()),
                                        .scatters = scattered});
                      });
}

Messages ShardExchange::messages_for(const ShardGroup& group, const GradientParts& parts) const {
  const StagedRows rows(options_, group, parts);
  const Shape shape{static_cast<std::int64_t>(parts.of_rank.size()), rows.columns};
  Messages m{.sent = {nullptr, wire_of(options_, group), shape, options_.device}, .received = m.sent};
  if (rows.receives) m.received.data = memory_.data();
  if (rows.sends_copies) m.sent.data = memory_.data() + (rows.receives ? m.received.bytes() : 0);
  return m;
}

Pending ShardExchange::settle(Ctx& ctx, const ShardGroup& group) {
  return queue_.start(ctx, ranks_.replicas(), [this, &group](Ctx& c, Collective& replicas) {
    if (adds_pieces()) return gather_pieces(c, replicas, group, ranks_.group().rank());
    if (group.own_grads.numel() > 0) add_replicas(c, replicas, group);
  });
}

Pending ShardExchange::replicate(Ctx& ctx, const ShardGroup& group) {
  return queue_.start(ctx, ranks_.replicas(), [&group](Ctx& c, Collective& replicas) {
    if (group.own_values.numel() > 0) replicas.broadcast(c, group.own_values, 0);
  });
}

void ShardExchange::add_replicas(Ctx& ctx, Collective& replicas, const ShardGroup& group) const {
  if (!rounds_sums(options_, group)) return replicas.all_reduce(ctx, group.own_grads, Reduction::sum);
  const std::int64_t n = replicas.size(), row = replica_row(options_, group, replicas.size());
  const Tensor both{memory_.data(), options_.wire, {2 * n, row}, options_.device};
  GradientBucket bucket;
  bucket.add(GradientParts::even(group.own_grads, replicas.size()));
  all_reduce(ctx, replicas, bucket, {both.slice(0, n), both.slice(n, n)});
}

}  // namespace qtrain
