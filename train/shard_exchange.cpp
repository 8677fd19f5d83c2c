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

// What is sent: [ranks, count], short rows with zeros behind them. Whole rows of one length are sent from where they
// are.
Tensor packed(Ctx& ctx, const ShardGroup& group, int ranks, Columns c, std::byte* memory) {
  if (group.is_even() && c.count == group.longest_row()) return group.grads.reshaped({ranks, c.count});
  const Tensor out{memory, *group.grad_dtype, {ranks, c.count}, group.grads.device};
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t n = c.of_row(group.row_size(r));
    const Tensor to = out.slice(r, 1).reshaped({c.count}), rest = to.slice(n, c.count - n);
    if (n > 0) copy(ctx, to.slice(0, n), group.grads.slice(group.row_begin(r) + c.begin, n));
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

struct Staging {
  std::byte* memory;
  std::int64_t columns;  ///< of which there is room for the rows of all ranks, twice
};

void reduce_rows(Ctx& ctx, Collective& ranks, const ShardGroup& group, Sink::Mode mode, const Staging& staging) {
  const int size = ranks.size();
  const std::int64_t longest = group.longest_row(), own = group.row_size(ranks.rank());
  for (std::int64_t begin = 0; begin < longest; begin += staging.columns) {
    const Columns c{begin, std::min(staging.columns, longest - begin)};
    const Tensor received{staging.memory, *group.grad_dtype, {size, c.count}, group.grads.device};
    ranks.all_to_all(ctx, packed(ctx, group, size, c, staging.memory + received.bytes()), received);
    if (const std::int64_t n = c.of_row(own); n > 0) add_rows(ctx, group.own_grads.slice(begin, n), received, mode);
  }
}

// What is there already goes along in the own row: nothing is added afterwards, and no memory needed for that.
void scatter_sums(Ctx& ctx, Collective& ranks, const ShardGroup& group, Sink::Mode mode) {
  const int rank = ranks.rank();
  const Tensor row = group.grads.slice(group.row_begin(rank), group.row_size(rank));
  if (mode == Sink::Mode::accumulate) ops::copy(ctx, {.y = accumulate(row), .x = group.own_grads});
  ranks.reduce_scatter(ctx, group.grads, group.own_grads);
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

std::size_t staging_bytes(int ranks, const ShardExchange::Options& options, std::span<const ParamStore* const> stores) {
  std::size_t most = 0;
  for (const ParamStore* store : stores)
    for (const ShardGroup& group : store->groups()) {
      if (!group.trained() || ShardExchange::scatters(options, group)) continue;
      const std::int64_t most_columns = ShardExchange::max_columns(options, ranks), longest = group.longest_row();
      const std::int64_t columns = std::min(longest, most_columns);
      const int buffers = group.is_even() && longest <= most_columns ? 1 : 2;
      most = std::max(most, static_cast<std::size_t>(buffers * ranks * columns) * size_of(*group.grad_dtype));
    }
  return most;
}

}  // namespace

ShardExchange::ShardExchange(Collective& ranks, const Options& options, std::span<const ParamStore* const> stores)
    : ranks_(ranks), options_(options), reached_(options.device) {
  if (options.own_stream) beside_.emplace(options.device, MatmulPrecision::storage, 1);
  if (const std::size_t n = staging_bytes(ranks.size(), options, stores); n > 0)
    memory_ = DeviceMemory(options.device, n, "gradients on their way");
}

std::int64_t ShardExchange::max_columns(const Options& options, int ranks) {
  constexpr std::int64_t kOnHost = std::int64_t{1} << 18, kOfAllRanks = std::int64_t{1} << 24;
  return options.device.kind == DeviceKind::cuda ? std::max(kOnHost, kOfAllRanks / ranks) : kOnHost;
}

bool ShardExchange::scatters(const Options& options, const ShardGroup& group) {
  return options.device.kind == DeviceKind::cuda && options.order == ReductionOrder::ranks && group.is_even();
}

std::size_t ShardExchange::bytes(int ranks, const Options& options, std::span<const ParamStore* const> stores) {
  return staging_bytes(ranks, options, stores) + (options.own_stream ? Ctx::kScratchBytes : 0);
}

ShardExchange::~ShardExchange() {
  if (std::uncaught_exceptions() > 0) ranks_.disconnect();
  if (beside_) return;  // a device waits before memory is freed
  try {
    last_.wait();
  } catch (const std::exception&) {  // somebody has waited for it, or an error is on its way
  }
}

Pending ShardExchange::start(Ctx& ctx, const Work& work) {
  if (beside_) return start_beside(ctx, work);
  return last_ = ranks_.start([&ctx, work](Collective& ranks) { work(ctx, ranks); });
}

// Exchanges are in order: who has waited for one has waited for those before it.
Pending ShardExchange::start_beside(Ctx& ctx, const Work& work) {
  Stream &caller = ctx.stream(), &own = beside_->stream();
  caller.record(reached_);
  own.wait(reached_);
  work(*beside_, ranks_);
  const auto done = std::make_shared<Event>(options_.device);
  own.record(*done);
  return Pending([this, &caller, done, number = ++begun_] {
    if (number <= seen_) return;
    caller.wait(*done);
    seen_ = number;
  });
}

Pending ShardExchange::gather(Ctx& ctx, const ShardGroup& group) {
  return start(ctx, [&group](Ctx& c, Collective& ranks) { gather_rows(c, ranks, group); });
}

Pending ShardExchange::reduce(Ctx& ctx, const ShardGroup& group, Sink::Mode mode) {
  if (scatters(options_, group))
    return start(ctx, [&group, mode](Ctx& c, Collective& ranks) { scatter_sums(c, ranks, group, mode); });
  return start(ctx, [this, &group, mode](Ctx& c, Collective& ranks) {
    reduce_rows(c, ranks, group, mode, {memory_.data(), max_columns(options_, ranks.size())});
  });
}

}  // namespace qtrain
