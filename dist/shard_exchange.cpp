#include "dist/shard_exchange.h"

#include <algorithm>
#include <cstring>

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
  const std::size_t element = size_of(rows.dtype), bytes = static_cast<std::size_t>(c.count) * element;
  ctx.pool().run(ranks, [&](std::int64_t r, int) {
    std::memcpy(memory + static_cast<std::size_t>(r) * bytes,
                rows.data + static_cast<std::size_t>(r * group.row + c.begin) * element, bytes);
  });
  return {memory, rows.dtype, {ranks, c.count}, {}};
}

// received [ranks, n], one after the other.
template <class T>
void add_rows(Ctx& ctx, std::span<T> sum, std::span<const T> received, Sink::Mode mode) {
  constexpr std::int64_t kPart = 1 << 14;
  const auto n = static_cast<std::int64_t>(sum.size()), ranks = static_cast<std::int64_t>(received.size()) / n;
  ctx.pool().run((n + kPart - 1) / kPart, [&](std::int64_t task, int) {
    const std::int64_t begin = task * kPart, end = std::min(n, begin + kPart);
    T* const out = sum.data();
    for (std::int64_t r = 0; r < ranks; ++r) {
      const T* const row = received.data() + r * n;
      if (r == 0 && mode == Sink::Mode::store)
        std::copy(row + begin, row + end, out + begin);
      else
        for (std::int64_t i = begin; i < end; ++i) out[i] = T(out[i] + row[i]);
    }
  });
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

void ShardExchange::gather(Ctx& ctx, const ShardGroup& group) {
  ranks_.all_gather(ctx, group.own_values, group.values.reshaped({ranks_.size(), group.row}));
}

void ShardExchange::reduce(Ctx& ctx, const ShardGroup& group, Sink::Mode mode) {
  const int ranks = ranks_.size();
  for (std::int64_t begin = 0; begin < group.row; begin += kMaxColumns) {
    const Columns c{begin, std::min(kMaxColumns, group.row - begin)};
    const Tensor received{memory_.data(), *group.grad_dtype, {ranks, c.count}, {}};
    const Tensor sent = packed(ctx, group, ranks, c, memory_.data() + received.bytes());
    ranks_.all_to_all(ctx, sent, received);
    dispatch_float(*group.grad_dtype, [&]<class T>() {
      add_rows<T>(ctx, group.own_grads.slice(c.begin, c.count).template span<T>(),
                  std::span<const T>(received.as<T>(), static_cast<std::size_t>(received.numel())), mode);
    });
  }
}

}  // namespace qtrain
