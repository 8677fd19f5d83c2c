#pragma once
#include "kernels/cuda/attention_gradient.cuh"

/// Blocks of keys that add to tiles of dq in turn: each adds its part to the sum in memory after the block of the
/// previous keys, and the last one writes dq.
namespace qtrain::ops {

inline constexpr int kItemKeys = 128;

/// A tile of queries of a head.
struct QueryTileAt {
  int tile, head;
};

/// Tiles [begin, end) of the queries that see a tile of keys; empty if end <= begin.
__device__ __forceinline__ TokenSpan query_tiles_of(const AttentionBatch& n, int tile) {
  const QueryBounds bounds = queries_of(n, tile * kItemKeys, kItemKeys, 0);
  return {(bounds.first - n.queries.begin) / kSumQueries,
          bounds.end > bounds.first ? ceil_div(bounds.end - n.queries.begin, kSumQueries) : 0};
}

/// Elements of OrderedSums::order: the order, and two values for each tile of keys while it is computed.
inline std::size_t order_elements(int tokens) {
  return 3 * ceil_div(static_cast<std::size_t>(tokens), std::size_t{kItemKeys});
}
/// Orders the tiles of keys, with a block of threads. The tiles that most queries see come first, so that the last
/// blocks are short. But a tile comes after that of the keys before it if both add to some tile of dq.
__device__ inline void order_tiles(const AttentionBatch& n, int* order) {
  const int tiles = ceil_div(n.tokens, kItemKeys), first = static_cast<int>(threadIdx.x),
            step = static_cast<int>(blockDim.x);
  int *ends = order + tiles, *lengths = ends + tiles;
  const auto begin = [&](int t) { return (max(t * kItemKeys, n.queries.begin) - n.queries.begin) / kSumQueries; };
  for (int t = first; t < tiles; t += step) ends[t] = query_tiles_of(n, t).end;
  __syncthreads();
  for (int t = first; t < tiles; t += step) {
    int longest = ends[t] - begin(t);
    for (int u = t; u + 1 < tiles && ends[u] > begin(u + 1); ++u) longest = max(longest, ends[u + 1] - begin(u + 1));
    lengths[t] = longest;
  }
  __syncthreads();
  for (int t = first; t < tiles; t += step) {
    int place = 0;
    for (int u = 0; u < tiles; ++u) place += lengths[u] > lengths[t] || (lengths[u] == lengths[t] && u < t) ? 1 : 0;
    order[place] = t;
  }
}

/// What a block processes: a tile of keys of one key head, and tiles [begin, end) of the queries that see them. In
/// shared memory, to save registers.
struct KeyItem {
  int before;    ///< last query that sees the key before the tile
  int seen_end;  ///< one past the last query that sees a key
  int tile, group, begin, end;
  int head, head_end;  ///< query heads of the group
  int pass_head;       ///< first query head of the pass
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
    const int number = atomicAdd(x.sums.next, 1);
    item.tile = x.sums.order[number / x.pass_groups];
    item.group = x.first_group + number % x.pass_groups;
    const TokenSpan tiles = query_tiles_of(n, item.tile);
    item.begin = tiles.begin;
    item.end = tiles.end;
    item.before = item.tile > 0 ? n.last_query(item.tile * kItemKeys - 1) : -1;
    item.seen_end = min(n.queries.end, n.cu[n.segments]);
    const int share = n.heads / n.groups;
    item.head = item.group * share;
    item.head_end = item.head + share;
    item.pass_head = x.first_group * share;
  }
  __device__ __forceinline__ QueryTileAt first() const { return {item.end - 1, item.head}; }
  __device__ __forceinline__ QueryTileAt next(const QueryTileAt& at) const {
    return at.head + 1 < item.head_end ? QueryTileAt{at.tile, at.head + 1} : QueryTileAt{at.tile - 1, item.head};
  }
  __device__ __forceinline__ bool done(const QueryTileAt& at) const { return at.tile < item.begin; }
  __device__ __forceinline__ int query(const QueryTileAt& at) const { return n.queries.begin + at.tile * kSumQueries; }
  /// Index of the tile among those of the pass.
  __device__ __forceinline__ int sum_of(const QueryTileAt& at) const {
    return (at.head - item.pass_head) * x.sums.tiles + at.tile;
  }
  /// Whether no block of earlier keys adds to a tile of dq, and whether none of later keys does.
  __device__ __forceinline__ bool is_first(const QueryTileAt& at) const { return query(at) > item.before; }
  __device__ __forceinline__ bool is_last(const QueryTileAt& at) const {
    return min(query(at) + kSumQueries, item.seen_end) <= (item.tile + 1) * kItemKeys;
  }
  /// Waits until the block of the previous keys has added to the tile.
  __device__ __forceinline__ void wait(const QueryTileAt& at) const {
    if (!is_first(at))
      while (ptx::load_acquire(x.sums.done + sum_of(at)) != item.tile) {
      }
  }
  /// Lets the next block add to a tile, by its index.
  __device__ __forceinline__ void pass_on(int sum) const { ptx::store_release(x.sums.done + sum, item.tile + 1); }
};

}  // namespace qtrain::ops
