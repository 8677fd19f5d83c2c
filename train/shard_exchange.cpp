#include "train/shard_exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "kernels/elementwise.h"

namespace qtrain {
namespace {

constexpr std::int64_t kMaxColumns = ShardExchange::kMaxColumns;

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

void reduce_rows(Ctx& ctx, Collective& ranks, const ShardGroup& group, Sink::Mode mode, std::byte* memory) {
  const int size = ranks.size();
  const std::int64_t longest = group.longest_row(), own = group.row_size(ranks.rank());
  for (std::int64_t begin = 0; begin < longest; begin += kMaxColumns) {
    const Columns c{begin, std::min(kMaxColumns, longest - begin)};
    const Tensor received{memory, *group.grad_dtype, {size, c.count}, group.grads.device};
    ranks.all_to_all(ctx, packed(ctx, group, size, c, memory + received.bytes()), received);
    if (const std::int64_t n = c.of_row(own); n > 0) add_rows(ctx, group.own_grads.slice(begin, n), received, mode);
  }
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

}  // namespace

ShardExchange::ShardExchange(Collective& ranks, Device device, std::span<const ParamStore* const> stores)
    : ranks_(ranks), memory_(device, bytes(ranks.size(), stores), "gradients on their way") {}

std::size_t ShardExchange::bytes(int ranks, std::span<const ParamStore* const> stores) {
  std::size_t most = 0;
  for (const ParamStore* store : stores)
    for (const ShardGroup& group : store->groups()) {
      if (!group.trained()) continue;
      const std::int64_t longest = group.longest_row(), columns = std::min(longest, kMaxColumns);
      const int buffers = group.is_even() && longest <= kMaxColumns ? 1 : 2;
      most = std::max(most, static_cast<std::size_t>(buffers * ranks * columns) * size_of(*group.grad_dtype));
    }
  return most;
}

ShardExchange::~ShardExchange() {
  if (std::uncaught_exceptions() > 0) ranks_.disconnect();
  try {
    last_.wait();
  } catch (const std::exception&) {  // somebody has waited for it, or an error is on its way
  }
}

Pending ShardExchange::start(std::function<void(Collective&)> work) {
  return last_ = ranks_.start(std::move(work));
}

Pending ShardExchange::gather(Ctx& ctx, const ShardGroup& group) {
  return start([&](Collective& ranks) { gather_rows(ctx, ranks, group); });
}

Pending ShardExchange::reduce(Ctx& ctx, const ShardGroup& group, Sink::Mode mode) {
  return start([this, &ctx, &group, mode](Collective& ranks) { reduce_rows(ctx, ranks, group, mode, memory_.data()); });
}

}  // namespace qtrain
