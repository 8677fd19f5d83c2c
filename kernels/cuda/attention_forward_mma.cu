#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/attention_tiles.cuh"

/// y = softmax(scale q k^T) v over the keys that each query sees. Each block processes a tile of queries of one head
/// and loops over tiles of keys. The next keys and values are copied during a whole step or, where that would leave
/// room for one block less per multiprocessor, values while scores are computed, and the next keys while values are
/// accumulated.
namespace qtrain::ops {
namespace {

/// Fragments of 16 queries per warp, and keys per tile: as many as fit in registers, and in shared memory twice per
/// multiprocessor if that has 100 KiB. Stages: tiles of keys and of values in shared memory.
template <int Width>
struct Shape {
  static constexpr int kFragments = Width <= 128 ? 2 : 1, kKeys = Width == 128 ? 32 : 64;
  static constexpr int kStages = Width <= 64 ? 2 : 1;
  static constexpr int kQueries = 16 * kFragments * kAttentionWarps;
};
/// Blocks per multiprocessor. If no more are launched, all begin at once, and their order does not matter.
inline constexpr int kBlocksAtOnce = 2;

template <class T, int Width>
struct Shared {
  Tile<T, Shape<Width>::kQueries, Width> q;
  Tile<T, Shape<Width>::kKeys, Width> k[Shape<Width>::kStages], v[Shape<Width>::kStages];
  int begin[Shape<Width>::kQueries];  ///< first key per query
  int first, end, head;               ///< the block's position, kept in shared memory to save registers
};

/// Orders the tiles of queries, which have numbers below `count`, with one block: those that see the most keys come
/// first, and numbers without a tile last. `ordered` has space for `count` integers after the tiles.
__global__ void order_queries(AttentionBatch n, int queries, int count, QueryTile* ordered) {
  const DocumentTiles tiles{n, n.queries, queries, cut_documents(n)};
  const int thread = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x);
  int* keys = reinterpret_cast<int*>(ordered + count);
  for (int t = thread; t < count; t += step) {
    const QueryTile tile = query_tile(tiles, t);
    keys[t] = tile.tokens.end > tile.tokens.begin ? tile.tokens.end - n.first_key(tile.tokens.begin, tile.segment) : -1;
  }
  __syncthreads();
  for (int t = thread; t < count; t += step) {
    int place = 0;
    for (int u = 0; u < count; ++u) place += keys[u] > keys[t] || (keys[u] == keys[t] && u > t) ? 1 : 0;
    ordered[place] = query_tile(tiles, t);
  }
}

/// `ordered`: the tiles of queries in the order in which blocks take them; null: from the last one on.
template <class T, int Width, Scores S>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_tile(AttentionBatch n, AttentionTensors<T> x, const QueryTile* ordered) {
  using Sizes = Shape<Width>;
  constexpr int kM = Sizes::kFragments, kKeys = Sizes::kKeys;
  auto& s = shared_memory<Shared<T, Width>>();
  const int head = static_cast<int>(blockIdx.x) % n.heads, group = n.group_of(head);
  const QueryTile tile = ordered ? ordered[static_cast<int>(blockIdx.x) / n.heads]
                                 : query_tile({n, n.queries, Sizes::kQueries, cut_documents(n)},
                                              static_cast<int>(gridDim.x - 1 - blockIdx.x) / n.heads);
  const int first = tile.tokens.begin, end = tile.tokens.end, row = warp_id() * 16 * kM;
  if (first >= end) return;
  const HeadRows<T> q{x.q + n.query(0, head), std::int64_t{n.heads} * n.width, end, n.width};
  const HeadRows<T> k{x.k + n.key(0, group), std::int64_t{n.groups} * n.width, end, n.width};
  HeadRows<T> v = k;
  v.data = x.v + n.key(0, group);
  int key = n.first_key(first, tile.segment);
  copy_rows(s.q, q, first);
  copy_rows(s.k[0], k, key);
  if constexpr (Sizes::kStages == 2) copy_rows(s.v[0], v, key);
  ptx::cp_async_commit();

  RowSoftmax<kM, kKeys> state{};
  float out[kM][Width / 8][4] = {};
  for_rows<kM>([&](int i, int h) { state.max[i][h] = -INFINITY; });
  if (static_cast<int>(threadIdx.x) < Sizes::kQueries) {
    const int t = min(first + static_cast<int>(threadIdx.x), end - 1);
    s.begin[threadIdx.x] = n.first_key(t, t < tile.segment.end ? tile.segment : n.segment(t));
  }
  if (threadIdx.x == 0) s.first = first, s.end = end, s.head = head;
  __syncthreads();
  const int* begin = s.begin + row + lane_id() / 4;
  const int warp_first = first + row, warp_begin = s.begin[row + 16 * kM - 1];
  const float scale = n.score_scale<S>() * kLog2e;

  for (int stage = 0; key < end; key += kKeys, stage = Sizes::kStages - 1 - stage) {
    // Whether some query of the warp sees some key of the tile.
    const bool sees = warp_first < end && key < warp_first + 16 * kM && key + kKeys > s.begin[row];
    ptx::cp_async_wait<0>();
    __syncthreads();
    if constexpr (Sizes::kStages == 1) {
      copy_rows(s.v[0], v, key);
    } else if (key + kKeys < end) {
      copy_rows(s.k[1 - stage], k, key + kKeys);
      copy_rows(s.v[1 - stage], v, key + kKeys);
    }
    ptx::cp_async_commit();
    float scores[kM][kKeys / 8][4] = {};
    if (sees) multiply_rows(scores, s.q, row, s.k[stage]);
    if constexpr (Sizes::kStages == 1) {
      ptx::cp_async_wait<0>();
      __syncthreads();
      if (key + kKeys < end) copy_rows(s.k[0], k, key + kKeys);
      ptx::cp_async_commit();
    }
    if (!sees) continue;
    if constexpr (S == Scores::capped) cap_scores<T>(scores, n.tanh_scale);
    if (key + kKeys - 1 > warp_first || key < warp_begin) mask_keys(scores, begin, first + row + lane_id() / 4, key);
    float fade[kM][2];
    if (__any_sync(kAllLanes, state.raise(scores, scale, fade))) {
      scale_rows(out, fade);
      for_rows<kM>([&](int i, int h) { state.sum[i][h] *= fade[i][h]; });
    }
    state.weigh(scores, scale);
    std::uint32_t p[kM][kKeys / 16][4];
    fragments_of<T>(p, scores);
    multiply(out, p, s.v[stage]);
  }
  ptx::cp_async_wait<0>();

  const RowsOfHead rows{s.first + warp_id() * 16 * kM + lane_id() / 4, s.end, s.head};
  put_results<T, S>(n, x, rows, state, out);
}

}  // namespace

void attention_mma(Ctx& ctx, const Attention& a) {
  const AttentionBatch batch = batch_of(a);
  const auto run = [&]<class T>() {
    dispatch_tiles(batch, [&]<int Width, Scores S>() {
      constexpr int kQueries = Shape<Width>::kQueries;
      const int tiles = DocumentTiles::numbers(batch, batch.rows(), kQueries);
      QueryTile* ordered = nullptr;
      if (tiles > 1 && tiles * batch.heads > kBlocksAtOnce * ctx.kept<Multiprocessors>().count) {
        constexpr int kThreads = 256;
        const std::size_t bytes = static_cast<std::size_t>(tiles) * (sizeof(QueryTile) + sizeof(int));
        ordered = reinterpret_cast<QueryTile*>(ctx.scratch(bytes));
        launch(ctx, "attention", order_queries, {1, kThreads}, batch, kQueries, tiles, ordered);
      }
      launch(ctx, "attention", attention_tile<T, Width, S>,
             {static_cast<unsigned>(tiles * batch.heads), kAttentionThreads, sizeof(Shared<T, Width>)}, batch,
             tensors_of<T>(a), ordered);
    });
  };
  if (a.q.dtype == DType::bf16)
    run.operator()<Bf16>();
  else
    run.operator()<F16>();
}

}  // namespace qtrain::ops
