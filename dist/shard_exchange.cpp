#include "dist/shard_exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace qtrain {
namespace {

constexpr std::int64_t kMaxColumns = ShardExchange::kMaxColumns;

/// Columns [begin, begin + count) of [rows, row].
struct Columns {
  std::int64_t begin, count;
};

// Whole rows are sent from where they are.
Tensor packed(const ShardGroup& group, int ranks, Columns c, std::byte* memory) {
  const Tensor rows = group.grads.reshaped({ranks, group.row});
  if (c.count == group.row) return rows;
  const std::size_t element = size_of(rows.dtype), bytes = static_cast<std::size_t>(c.count) * element;
  for (std::int64_t r = 0; r < ranks; ++r)
    std::memcpy(memory + static_cast<std::size_t>(r) * bytes,
                rows.data + static_cast<std::size_t>(r * group.row + c.begin) * element, bytes);
  return {memory, rows.dtype, {ranks, c.count}, {}};
}

// received [ranks, n], one after the other.
template <class T>
void add_rows(std::span<T> sum, std::span<const T> received, Sink::Mode mode) {
  const std::size_t n = sum.size(), ranks = received.size() / n;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::span<const T> row = received.subspan(r * n, n);
    if (r == 0 && mode == Sink::Mode::store)
      std::ranges::copy(row, sum.begin());
    else
      for (std::size_t i = 0; i < n; ++i) sum[i] = T(sum[i] + row[i]);
  }
}

void reduce_rows(Ctx& ctx, Collective& ranks, const ShardGroup& group, Sink::Mode mode, std::byte* memory) {
  const int size = ranks.size();
  for (std::int64_t begin = 0; begin < group.row; begin += kMaxColumns) {
    const Columns c{begin, std::min(kMaxColumns, group.row - begin)};
    const Tensor received{memory, *group.grad_dtype, {size, c.count}, {}};
    ranks.all_to_all(ctx, packed(group, size, c, memory + received.bytes()), received);
    dispatch_float(*group.grad_dtype, [&]<class T>() {
      add_rows<T>(group.own_grads.slice(c.begin, c.count).template span<T>(),
                  std::span<const T>(received.as<T>(), static_cast<std::size_t>(received.numel())), mode);
    });
  }
}

}  // namespace

ShardExchange::ShardExchange(Collective& ranks, std::span<const ParamStore* const> stores)
    : ranks_(ranks), memory_({}, bytes(ranks.size(), stores), "gradients on their way") {}

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
