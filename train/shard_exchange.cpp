#include "train/shard_exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "kernels/elementwise.h"

namespace qtrain {
namespace {

constexpr std::int64_t kMaxColumns = std::int64_t{1} << 18;  // elements that a rank sends to another at once

/// Columns [begin, begin + count) of [rows, row].
struct Columns {
  std::int64_t begin, count;
};

// Whole rows are sent from where they are.
Tensor packed(Ctx& ctx, const ShardGroup& group, int ranks, Columns c, std::byte* memory) {
  const Tensor rows = group.grads.reshaped({ranks, group.row});
  if (c.count == group.row) return rows;
  const Tensor out{memory, rows.dtype, {ranks, c.count}, rows.device};
  for (int r = 0; r < ranks; ++r) {
    const Tensor from = rows.slice(r, 1).reshaped({group.row}).slice(c.begin, c.count), to = out.slice(r, 1);
    if (from.device.kind == DeviceKind::cpu)
      std::memcpy(to.data, from.data, from.bytes());
    else
      ctx.stream().copy(to.data, from.data, from.bytes());
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

// received [ranks, n], one after the other.
void add_rows(Ctx& ctx, const Tensor& sum, const Tensor& received, Sink::Mode mode) {
  for (std::int64_t r = 0; r < received.shape[0]; ++r) {
    const Tensor row = received.slice(r, 1).reshaped(sum.shape);
    const Sink to{sum, r == 0 ? mode : Sink::Mode::accumulate};
    if (sum.device.kind == DeviceKind::cuda)
      ops::copy(ctx, {.y = to, .x = row});
    else
      dispatch_float(sum.dtype, [&]<class T>() { add_row<T>(sum.span<T>(), ConstTensor(row).span<T>(), to.mode); });
  }
}

void reduce_rows(Ctx& ctx, Collective& ranks, const ShardGroup& group, Sink::Mode mode, std::byte* memory) {
  const int size = ranks.size();
  for (std::int64_t begin = 0; begin < group.row; begin += kMaxColumns) {
    const Columns c{begin, std::min(kMaxColumns, group.row - begin)};
    const Tensor received{memory, *group.grad_dtype, {size, c.count}, group.grads.device};
    ranks.all_to_all(ctx, packed(ctx, group, size, c, memory + received.bytes()), received);
    add_rows(ctx, group.own_grads.slice(c.begin, c.count), received, mode);
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
      const std::int64_t buffers = group.row > kMaxColumns ? 2 : 1, columns = std::min(group.row, kMaxColumns);
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
  return start([&](Collective& ranks) {
    ranks.all_gather(ctx, group.own_values, group.values.reshaped({ranks.size(), group.row}));
  });
}

Pending ShardExchange::reduce(Ctx& ctx, const ShardGroup& group, Sink::Mode mode) {
  return start([this, &ctx, &group, mode](Collective& ranks) { reduce_rows(ctx, ranks, group, mode, memory_.data()); });
}

}  // namespace qtrain
