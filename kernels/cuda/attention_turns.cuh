#pragma once
#include "kernels/cuda/attention_gradient.cuh"

/// Blocks of keys that add to tiles of dq in turn: each adds its part to the sum in memory after the block of the next
/// keys, and the last one writes dq.
namespace qtrain::ops {

inline constexpr int kItemKeys = 128;

/// A tile of queries of a head.
struct QueryTileAt {
  int tile, head;
};

/// What a block processes: a tile of keys of one key head, and tiles [begin, end) of the queries that see them. In
/// shared memory, to save registers.
struct KeyItem {
  int number;    ///< in the order in which blocks begin
  int before;    ///< last query that sees the key before the tile
  int seen_end;  ///< one past the last query that sees a key
  int tile, group, begin, end;
};

/// The tiles of queries of a block's heads, in the order in which blocks visit them.
template <class T>
struct Turns {
  const AttentionBatch& n;
  const SummedGradients<T>& x;
  KeyItem& item;

  /// Called by one thread. Blocks wait for those that began before them, so the order in which they begin gives them
  /// their items.
  __device__ __forceinline__ void take() const {
    item.number = atomicAdd(x.sums.next, 1);
    item.tile = ceil_div(n.tokens, kItemKeys) - 1 - item.number / x.pass_groups;
    item.group = x.first_group + item.number % x.pass_groups;
    const QueryBounds bounds = queries_of(n, item.tile * kItemKeys, kItemKeys, 0);
    item.begin = (bounds.first - n.queries.begin) / kSumQueries;
    item.end = bounds.end > bounds.first ? ceil_div(bounds.end - n.queries.begin, kSumQueries) : 0;
    item.before = item.tile > 0 ? n.last_query(item.tile * kItemKeys - 1) : -1;
    item.seen_end = min(n.queries.end, n.cu[n.segments]);
  }
  __device__ __forceinline__ QueryTileAt first() const { return {item.begin, item.group * (n.heads / n.groups)}; }
  __device__ __forceinline__ QueryTileAt next(const QueryTileAt& at) const {
    return at.tile + 1 < item.end ? QueryTileAt{at.tile + 1, at.head} : QueryTileAt{item.begin, at.head + 1};
  }
  __device__ __forceinline__ bool done(const QueryTileAt& at) const {
    return item.begin >= item.end || at.head >= (item.group + 1) * (n.heads / n.groups);
  }
  __device__ __forceinline__ int query(const QueryTileAt& at) const { return n.queries.begin + at.tile * kSumQueries; }
  /// Index of the tile among those of the pass.
  __device__ __forceinline__ int sum_of(const QueryTileAt& at) const {
    return (at.head - x.first_group * (n.heads / n.groups)) * x.sums.tiles + at.tile;
  }
  /// The number of tiles of keys that add to a tile of dq before the block's.
  __device__ __forceinline__ int ahead(const QueryTileAt& at) const {
    return (min(query(at) + kSumQueries, item.seen_end) - 1) / kItemKeys - item.tile;
  }
  __device__ __forceinline__ bool is_last(const QueryTileAt& at) const { return query(at) > item.before; }
  /// Waits until the block of the next keys has added to the tile.
  __device__ __forceinline__ void wait(const QueryTileAt& at) const {
    if (ahead(at) > 0)
      while (ptx::load_acquire(x.sums.done + sum_of(at)) != item.number + 1 - x.pass_groups) {
      }
  }
  /// Lets the next block add to a tile, by its index.
  __device__ __forceinline__ void pass_on(int sum) const { ptx::store_release(x.sums.done + sum, item.number + 1); }
};

}  // namespace qtrain::ops
