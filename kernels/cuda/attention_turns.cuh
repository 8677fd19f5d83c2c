#pragma once
#include "kernels/cuda/attention_gradient.cuh"
#include "kernels/cuda/attention_tiles.cuh"

#include <climits>

/// Blocks of keys that add to tiles of dq in turn: each adds its part to the sum in memory after the block of the
/// previous keys, and the last one writes dq.
namespace qtrain::ops {

inline constexpr int kItemKeys = 128;

/// A tile of queries of a head; those of a document are counted from its first one.
struct QueryTileAt {
  int tile, head;
};

/// A tile of keys, and tiles [begin, end) of the queries that see them; none if end <= begin.
struct KeyTile {
  int number;
  int first, key_end;  ///< keys [first, key_end); empty if the number has no tile
  int origin, sums;    ///< first query of the document's tiles, and the number of its first tile among all
  int begin, end;
  int before;     ///< last query that sees the key before the tile
  int query_end;  ///< one past the last query of the document that sees a key
};
__device__ __forceinline__ KeyTile key_tile(const AttentionBatch& n, int cuts, int number) {
  const DocumentTiles keys{n, {0, n.tokens}, kItemKeys, cuts}, queries{n, n.queries, kSumQueries, cuts};
  const int d = keys.document(number), used = n.cu[n.segments];
  const TokenSpan of = keys.tile(number, d);
  KeyTile t{
      .number = number, .first = of.begin, .key_end = of.end, .origin = queries.begin(d), .sums = queries.first(d)};
  t.query_end = min(queries.end(d), used);
  t.before = -1;
  if (t.first >= t.key_end) return t;
  if (t.first > keys.begin(d)) t.before = n.last_query(t.first - 1);
  const QueryBounds bounds = queries_of(n, {t.first, t.key_end}, 0);
  t.begin = (bounds.first - t.origin) / kSumQueries;
  t.end = bounds.end > bounds.first ? ceil_div(bounds.end - t.origin, kSumQueries) : 0;
  return t;
}

/// Numbers of the tiles of keys, and of those of queries, are less than this.
inline int key_tiles(const AttentionBatch& n) {
  return DocumentTiles::numbers(n, n.tokens, kItemKeys);
}
inline int sum_tiles(const AttentionBatch& n) {
  return DocumentTiles::numbers(n, n.rows(), kSumQueries);
}
/// Bytes of OrderedSums::ordered: the tiles in order, and three values for each while the order is computed.
inline std::size_t ordered_bytes(int key_tiles) {
  return static_cast<std::size_t>(key_tiles) * (sizeof(KeyTile) + 3 * sizeof(int));
}
/// Orders the tiles of keys, with a block of threads. The tiles that most queries see come first, so that the last
/// blocks are short, and numbers without a tile last. But a tile comes after that of the keys before it if both add to
/// some tile of dq.
__device__ inline void order_tiles(const AttentionBatch& n, KeyTile* ordered, int tiles) {
  const int thread = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x), cuts = cut_documents(n);
  // Tiles of dq to which a tile adds, by their numbers among all.
  int *begins = reinterpret_cast<int*>(ordered + tiles), *ends = begins + tiles, *lengths = ends + tiles;
  for (int t = thread; t < tiles; t += step) {
    const KeyTile tile = key_tile(n, cuts, t);
    const bool adds = tile.first < tile.key_end && tile.begin < tile.end;
    begins[t] = adds ? tile.sums + tile.begin : INT_MAX;
    ends[t] = adds ? tile.sums + tile.end : tile.first < tile.key_end ? 0 : -1;
  }
  __syncthreads();
  for (int t = thread; t < tiles; t += step) {
    int longest = ends[t] > 0 ? ends[t] - begins[t] : ends[t];
    for (int u = t; u + 1 < tiles && ends[u] > begins[u + 1]; ++u) longest = max(longest, ends[u + 1] - begins[u + 1]);
    lengths[t] = longest;
  }
  __syncthreads();
  for (int t = thread; t < tiles; t += step) {
    int place = 0;
    for (int u = 0; u < tiles; ++u) place += lengths[u] > lengths[t] || (lengths[u] == lengths[t] && u < t) ? 1 : 0;
    ordered[place] = key_tile(n, cuts, t);
  }
}

/// What a block processes: a tile of keys of one key head, and the queries that see them. In shared memory, to save
/// registers.
struct KeyItem : KeyTile {
  int group;
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
    static_cast<KeyTile&>(item) = x.sums.ordered[number / x.pass_groups];
    item.group = x.first_group + number % x.pass_groups;
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
  __device__ __forceinline__ int query(const QueryTileAt& at) const { return item.origin + at.tile * kSumQueries; }
  /// Number of the tile among those of the pass.
  __device__ __forceinline__ int sum_of(const QueryTileAt& at) const {
    return (at.head - item.pass_head) * x.sums.tiles + item.sums + at.tile;
  }
  /// Where the sums of a tile begin, in rows of the sums of all heads. The last tile of a document reaches into the
  /// space of the next one's first tile, which only the block of its first keys adds to, and which has no sums.
  __device__ __forceinline__ int sum_row(const QueryTileAt& at) const {
    return (at.head - item.pass_head) * x.sums.rows + query(at) - n.queries.begin;
  }
  /// Whether no block of earlier keys adds to a tile of dq, and whether none of later keys does.
  __device__ __forceinline__ bool is_first(const QueryTileAt& at) const { return query(at) > item.before; }
  __device__ __forceinline__ bool is_last(const QueryTileAt& at) const {
    return min(query(at) + kSumQueries, item.query_end) <= item.key_end;
  }
  /// Waits until the block of the previous keys has added to the tile.
  __device__ __forceinline__ void wait(const QueryTileAt& at) const {
    if (!is_first(at))
      while (ptx::load_acquire(x.sums.done + sum_of(at)) != item.number) {
      }
  }
  /// Lets the next block add to a tile, by its number.
  __device__ __forceinline__ void pass_on(int sum) const { ptx::store_release(x.sums.done + sum, item.number + 1); }
};

}  // namespace qtrain::ops
