#include "train/ranks/shard_exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "kernels/elementwise.h"

namespace qtrain {
namespace {

/// Elements [begin, begin + count) of every row, as far as it has them.
struct Columns {
  std::int64_t begin, count;

  std::int64_t of_row(std::int64_t size) const { return std::clamp(size - begin, std::int64_t{0}, count); }
};

/// What is sent to whom: each row of a group is cut into equal pieces, one for each replica that adds it.
struct Pieces {
  const ShardGroup& group;
  int ranks, replicas;  ///< of the run: rank j of replica k has piece k of row j

  Pieces(const ShardGroup& g, int replicas_that_add)
      : group(g), ranks(static_cast<int>(g.rows.size()) - 1), replicas(replicas_that_add) {}
  int all() const { return ranks * replicas; }
  std::int64_t longest() const { return (group.longest_row() + replicas - 1) / replicas; }
  /// Of a rank of the run, in its row.
  Columns of(int rank) const {
    const std::int64_t row = group.row_size(rank % ranks), begin = std::min(row, rank / ranks * longest());
    return {begin, std::min(longest(), row - begin)};
  }
  /// Whether all lie one behind the other in the order of the ranks, as long as each other.
  bool are_rows() const { return replicas == 1 && group.is_even(); }
};

/// What is sent at once, or received.
struct Buffer {
  std::byte* memory;
  DType dtype;
};

// What is sent: [ranks, count], short pieces with zeros behind them. Whole rows of one length are sent from where they
// are, if they are not rounded.
Tensor packed(Ctx& ctx, const Pieces& pieces, Columns c, Buffer buffer) {
  const ShardGroup& group = pieces.group;
  const Tensor out{buffer.memory, buffer.dtype, {pieces.all(), c.count}, group.grads.device};
  if (pieces.are_rows() && c.count == pieces.longest()) {
    const Tensor rows = group.grads.reshaped(out.shape);
    if (buffer.dtype == *group.grad_dtype) return rows;
    copy_alone(ctx, out, rows);
    return out;
  }
  for (int r = 0; r < pieces.all(); ++r) {
    const Columns piece = pieces.of(r);
    const std::int64_t n = c.of_row(piece.count);
    const Tensor to = out.slice(r, 1).reshaped({c.count}), rest = to.slice(n, c.count - n);
    const std::int64_t begin = group.row_begin(r % pieces.ranks) + piece.begin + c.begin;
    if (n > 0) copy_alone(ctx, to.slice(0, n), group.grads.slice(begin, n));
    if (n < c.count) clear_alone(ctx, rest);
  }
  return out;
}

/// How gradients are added.
struct Adding {
  Sink::Mode mode;
  Buffer buffer;         ///< for what is sent and received
  std::int64_t columns;  ///< of all ranks at once
  bool scatters;         ///< as Collective::reduce_scatter
};

// What this rank adds: what it has received of each, or the sum.
Tensor exchanged(Ctx& ctx, Collective& ranks, const Pieces& pieces, Columns c, const Adding& how) {
  const Buffer& memory = how.buffer;
  if (how.scatters) {
    const Tensor sent = packed(ctx, pieces, c, memory), own = sent.slice(ranks.rank(), 1);
    ranks.reduce_scatter(ctx, sent, own.reshaped({c.count}));
    return own;
  }
  const Tensor received{memory.memory, memory.dtype, {pieces.all(), c.count}, pieces.group.grads.device};
  ranks.all_to_all(ctx, packed(ctx, pieces, c, {memory.memory + received.bytes(), memory.dtype}), received);
  return received;
}

void reduce_pieces(Ctx& ctx, Collective& ranks, const Pieces& pieces, const Adding& how) {
  const ShardGroup& group = pieces.group;
  const Columns own = pieces.of(ranks.rank());
  for (std::int64_t begin = 0; begin < pieces.longest(); begin += how.columns) {
    const Columns c{begin, std::min(how.columns, pieces.longest() - begin)};
    const Tensor rows = exchanged(ctx, ranks, pieces, c, how);
    if (const std::int64_t n = c.of_row(own.count); n > 0)
      add_in_order(ctx, group.own_grads.slice(own.begin + begin, n), rows, how.mode);
  }
}

// What is there already goes along in the own row: nothing is added afterwards, and no memory needed for that.
void scatter_sums(Ctx& ctx, Collective& ranks, const ShardGroup& group, Sink::Mode mode) {
  const int rank = ranks.rank();
  const Tensor row = group.grads.slice(group.row_begin(rank), group.row_size(rank));
  if (mode == Sink::Mode::accumulate) ops::copy(ctx, {.y = accumulate(row), .x = group.own_grads});
  ranks.reduce_scatter(ctx, group.grads, group.own_grads);
}

// Each replica has added a piece of the own row.
void gather_pieces(Ctx& ctx, Collective& replicas, const ShardGroup& group, int rank) {
  const Pieces pieces(group, replicas.size());
  for (int k = 0; k < replicas.size(); ++k)
    if (const Columns piece = pieces.of(k * pieces.ranks + rank); piece.count > 0)
      replicas.broadcast(ctx, group.own_grads.slice(piece.begin, piece.count), k);
}

void gather_rows(Ctx& ctx, Collective& ranks, const ShardGroup& group) {
  if (group.is_even()) {
    Tensor mine = group.own_values;
    if (mine.device.kind != group.values.device.kind) {  // it waits on the host
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

// Whether gradients of the group are wider than what is sent.
bool is_wider(const ShardExchange::Options& options, const ShardGroup& group) {
  return options.wire == DType::bf16 && size_of(*group.grad_dtype) > size_of(options.wire);
}

// Elements that are sent and received at once to add the gradients of a group; of so many replicas.
std::int64_t staged_elements(const ShardExchange::Options& options, const ShardGroup& group, int replicas) {
  const bool rounds = ShardExchange::rounds(options, group), scatters = ShardExchange::scatters(options, group);
  if (scatters && !rounds) return 0;
  const Pieces pieces(group, options.order == ReductionOrder::micro_batches ? replicas : 1);
  const std::int64_t most_columns = ShardExchange::max_columns(options.device, pieces.all());
  const std::int64_t longest = pieces.longest(), columns = std::min(longest, most_columns);
  const bool from_there = !rounds && pieces.are_rows() && longest <= most_columns;
  return (from_there || scatters ? 1 : 2) * pieces.all() * columns;
}

// The same for the sums of an update over replicas, where those are rounded: of a row for each.
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
    : ranks_(ranks), options_(options) {
  if (options.own_stream) beside_.emplace(options.device);
  if (const std::size_t n = staging_bytes(options, stores); n > 0)
    memory_ = DeviceMemory(options.device, n, "gradients on their way");
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

// A rank alone in its group sends nothing there, but has the bits of several where sums are in order.
bool ShardExchange::rounds(const Options& options, const ShardGroup& group) {
  const bool alone = group.rows.size() == 2 && options.order == ReductionOrder::ranks;
  return !alone && is_wider(options, group);
}

bool ShardExchange::rounds_sums(const Options& options, const ShardGroup& group) {
  return options.order == ReductionOrder::ranks && is_wider(options, group);
}

std::size_t ShardExchange::bytes(const Options& options, std::span<const ParamStore* const> stores) {
  return staging_bytes(options, stores) + (options.own_stream ? ExchangeStream::kBytes : 0);
}

ShardExchange::~ShardExchange() {
  if (std::uncaught_exceptions() > 0) ranks_.disconnect();
  if (beside_) return;  // a device waits before memory is freed
  try {
    last_.wait();
  } catch (const std::exception&) {  // somebody has waited for it, or an error is on its way
  }
}

Pending ShardExchange::start(Ctx& ctx, Collective& ranks, const ExchangeStream::Work& work) {
  if (beside_) return beside_->start(ctx, ranks, work);
  return last_ = ranks.start([&ctx, work](Collective& r) { work(ctx, r); });
}

Pending ShardExchange::gather(Ctx& ctx, const ShardGroup& group) {
  return start(ctx, ranks_.group(), [&group](Ctx& c, Collective& ranks) { gather_rows(c, ranks, group); });
}

Pending ShardExchange::reduce(Ctx& ctx, const ShardGroup& group, Sink::Mode mode) {
  const bool scattered = scatters(options_, group);
  if (scattered && !rounds(options_, group))
    return start(ctx, ranks_.group(),
                 [&group, mode](Ctx& c, Collective& ranks) { scatter_sums(c, ranks, group, mode); });
  return start(ctx, adds_pieces() ? ranks_.all() : ranks_.group(), [=, this, &group](Ctx& c, Collective& ranks) {
    const Pieces pieces(group, ranks.size() / (static_cast<int>(group.rows.size()) - 1));
    const Buffer buffer{memory_.data(), wire_of(options_, group)};
    reduce_pieces(c, ranks, pieces, {mode, buffer, max_columns(options_.device, ranks.size()), scattered});
  });
}

Pending ShardExchange::settle(Ctx& ctx, const ShardGroup& group) {
  return start(ctx, ranks_.replicas(), [this, &group](Ctx& c, Collective& replicas) {
    if (adds_pieces()) return gather_pieces(c, replicas, group, ranks_.group().rank());
    if (group.own_grads.numel() > 0) add_replicas(c, replicas, group);
  });
}

Pending ShardExchange::replicate(Ctx& ctx, const ShardGroup& group) {
  return start(ctx, ranks_.replicas(), [&group](Ctx& c, Collective& replicas) {
    if (group.own_values.numel() > 0) replicas.broadcast(c, group.own_values, 0);
  });
}

void ShardExchange::add_replicas(Ctx& ctx, Collective& replicas, const ShardGroup& group) const {
  if (!rounds_sums(options_, group)) return replicas.all_reduce(ctx, group.own_grads, Reduction::sum);
  const std::int64_t n = replicas.size(), row = replica_row(options_, group, replicas.size());
  const Tensor both{memory_.data(), options_.wire, {2 * n, row}, options_.device};
  GradientBucket bucket;
  bucket.add({.gradient = group.own_grads, .row = (group.own_grads.numel() + n - 1) / n});
  all_reduce(ctx, replicas, bucket, {both.slice(0, n), both.slice(n, n)});
}

}  // namespace qtrain
