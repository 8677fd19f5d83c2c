#include "train/shard_exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "kernels/elementwise.h"

namespace qtrain {
namespace {

/// Elements [begin, begin + count) of every row, as far as it has them.
struct Columns {
  std::int64_t begin, count;

  std::int64_t of_row(std::int64_t size) const { return std::clamp(size - begin, std::int64_t{0}, count); }
};

void copy(Ctx& ctx, const Tensor& to, const Tensor& from) {
  if (to.device.kind == DeviceKind::cpu)
    std::memcpy(to.data, from.data, from.bytes());
  else
    ctx.stream().copy(to.data, from.data, from.bytes());
}

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

// What is sent: [ranks, count], short pieces with zeros behind them. Whole rows of one length are sent from where they
// are.
Tensor packed(Ctx& ctx, const Pieces& pieces, Columns c, std::byte* memory) {
  const ShardGroup& group = pieces.group;
  if (pieces.are_rows() && c.count == pieces.longest()) return group.grads.reshaped({pieces.all(), c.count});
  const Tensor out{memory, *group.grad_dtype, {pieces.all(), c.count}, group.grads.device};
  for (int r = 0; r < pieces.all(); ++r) {
    const Columns piece = pieces.of(r);
    const std::int64_t n = c.of_row(piece.count);
    const Tensor to = out.slice(r, 1).reshaped({c.count}), rest = to.slice(n, c.count - n);
    const std::int64_t begin = group.row_begin(r % pieces.ranks) + piece.begin + c.begin;
    if (n > 0) copy(ctx, to.slice(0, n), group.grads.slice(begin, n));
    if (rest.device.kind == DeviceKind::cpu)
      std::memset(rest.data, 0, rest.bytes());
    else
      ctx.stream().fill(rest.data, 0, rest.bytes());
  }
  return out;
}

// On the thread of the exchange: the others compute.
template <class T>
void add_row(std::span<T> sum, std::span<const T> row, Sink::Mode mode) {
  if (mode == Sink::Mode::store)
    std::ranges::copy(row, sum.begin());
  else
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = T(sum[i] + row[i]);
}

// The beginnings of the rows of received [ranks, count], one after the other.
void add_rows(Ctx& ctx, const Tensor& sum, const Tensor& received, Sink::Mode mode) {
  for (std::int64_t r = 0; r < received.shape[0]; ++r) {
    const Tensor row = received.slice(r, 1).reshaped({received.shape[1]}).slice(0, sum.numel());
    const Sink to{sum, r == 0 ? mode : Sink::Mode::accumulate};
    if (sum.device.kind == DeviceKind::cuda)
      ops::copy(ctx, {.y = to, .x = row});
    else
      dispatch_float(sum.dtype, [&]<class T>() { add_row<T>(sum.span<T>(), ConstTensor(row).span<T>(), to.mode); });
  }
}

/// How gradients are added.
struct Adding {
  Sink::Mode mode;
  std::byte* memory;     ///< for what is sent and received
  std::int64_t columns;  ///< of all ranks at once
};

void reduce_pieces(Ctx& ctx, Collective& ranks, const Pieces& pieces, const Adding& how) {
  const ShardGroup& group = pieces.group;
  const Columns own = pieces.of(ranks.rank());
  for (std::int64_t begin = 0; begin < pieces.longest(); begin += how.columns) {
    const Columns c{begin, std::min(how.columns, pieces.longest() - begin)};
    const Tensor received{how.memory, *group.grad_dtype, {pieces.all(), c.count}, group.grads.device};
    ranks.all_to_all(ctx, packed(ctx, pieces, c, how.memory + received.bytes()), received);
    if (const std::int64_t n = c.of_row(own.count); n > 0)
      add_rows(ctx, group.own_grads.slice(own.begin + begin, n), received, how.mode);
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
      copy(ctx, mine, group.own_values);
    }
    return ranks.all_gather(ctx, mine, group.values);
  }
  for (int r = 0; r < ranks.size(); ++r) {
    if (group.row_size(r) == 0) continue;
    const Tensor row = group.values.slice(group.row_begin(r), group.row_size(r));
    if (r == ranks.rank() && row.data != group.own_values.data) copy(ctx, row, group.own_values);
    ranks.broadcast(ctx, row, r);
  }
}

std::size_t staging_bytes(const ShardExchange::Options& options, std::span<const ParamStore* const> stores) {
  std::size_t most = 0;
  for (const ParamStore* store : stores)
    for (const ShardGroup& group : store->groups()) {
      if (!group.trained() || ShardExchange::scatters(options, group)) continue;
      const Pieces pieces(group, options.order == ReductionOrder::micro_batches ? store->sharding().replicas : 1);
      const std::int64_t most_columns = ShardExchange::max_columns(options.device, pieces.all());
      const std::int64_t longest = pieces.longest(), columns = std::min(longest, most_columns);
      const int buffers = pieces.are_rows() && longest <= most_columns ? 1 : 2;
      most = std::max(most, static_cast<std::size_t>(buffers * pieces.all() * columns) * size_of(*group.grad_dtype));
    }
  return most;
}

}  // namespace

ShardExchange::ShardExchange(ShardRanks& ranks, const Options& options, std::span<const ParamStore* const> stores)
    : ranks_(ranks), options_(options), reached_(options.device) {
  if (options.own_stream) beside_.emplace(options.device, MatmulPrecision::storage, 1);
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

std::size_t ShardExchange::bytes(const Options& options, std::span<const ParamStore* const> stores) {
  return staging_bytes(options, stores) + (options.own_stream ? Ctx::kScratchBytes : 0);
}

ShardExchange::~ShardExchange() {
  if (std::uncaught_exceptions() > 0) ranks_.disconnect();
  if (beside_) return;  // a device waits before memory is freed
  try {
    last_.wait();
  } catch (const std::exception&) {  // somebody has waited for it, or an error is on its way
  }
}

Pending ShardExchange::start(Ctx& ctx, Collective& ranks, const Work& work) {
  if (beside_) return start_beside(ctx, ranks, work);
  return last_ = ranks.start([&ctx, work](Collective& r) { work(ctx, r); });
}

// Exchanges are in order: who has waited for one has waited for those before it.
Pending ShardExchange::start_beside(Ctx& ctx, Collective& ranks, const Work& work) {
  Stream &caller = ctx.stream(), &own = beside_->stream();
  caller.record(reached_);
  own.wait(reached_);
  ranks.start([&](Collective& r) { work(*beside_, r); }).wait();
  const auto done = std::make_shared<Event>(options_.device);
  own.record(*done);
  return Pending([this, &caller, done, number = ++begun_] {
    if (number <= seen_) return;
    caller.wait(*done);
    seen_ = number;
  });
}

Pending ShardExchange::gather(Ctx& ctx, const ShardGroup& group) {
  return start(ctx, ranks_.group(), [&group](Ctx& c, Collective& ranks) { gather_rows(c, ranks, group); });
}

Pending ShardExchange::reduce(Ctx& ctx, const ShardGroup& group, Sink::Mode mode) {
  if (scatters(options_, group))
    return start(ctx, ranks_.group(),
                 [&group, mode](Ctx& c, Collective& ranks) { scatter_sums(c, ranks, group, mode); });
  return start(ctx, adds_pieces() ? ranks_.all() : ranks_.group(), [this, &group, mode](Ctx& c, Collective& ranks) {
    const Pieces pieces(group, ranks.size() / (static_cast<int>(group.rows.size()) - 1));
    reduce_pieces(c, ranks, pieces, {mode, memory_.data(), max_columns(options_.device, ranks.size())});
  });
}

Pending ShardExchange::settle(Ctx& ctx, const ShardGroup& group) {
  return start(ctx, ranks_.replicas(), [this, &group](Ctx& c, Collective& replicas) {
    if (adds_pieces()) return gather_pieces(c, replicas, group, ranks_.group().rank());
    if (group.own_grads.numel() > 0) replicas.all_reduce(c, group.own_grads, Reduction::sum);
  });
}

Pending ShardExchange::replicate(Ctx& ctx, const ShardGroup& group) {
  return start(ctx, ranks_.replicas(), [&group](Ctx& c, Collective& replicas) {
    if (group.own_values.numel() > 0) replicas.broadcast(c, group.own_values, 0);
  });
}

}  // namespace qtrain
