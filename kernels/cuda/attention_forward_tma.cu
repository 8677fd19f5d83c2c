#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/attention_tma.cuh"

/// y = softmax(scale q k^T) v on the tensor cores of sm_90a, for heads of 64 and 128 elements. There are as many blocks
/// as multiprocessors; each takes one item after another, which is a tile of queries of one head, 64 in each of two or
/// three warpgroups, and loops over tiles of keys. While the weights of one tile are computed, the tensor cores
/// multiply those of the previous tile by its values. A warp of a further warpgroup, which needs few registers, copies
/// the tiles, also those of the next item.
namespace qtrain::ops {
namespace {

inline constexpr int kTileKeys = 128;

/// Warpgroups that compute, and the registers of the threads that copy and of those that compute: as many as a
/// multiprocessor has for one block.
template <int Width>
struct Shape {
  static constexpr int kGroups = Width == 64 ? 3 : 2;
  static constexpr int kQueries = kGroups * kWarpgroupRows, kWarps = kGroups * 4;
  static constexpr int kComputing = kGroups * kWarpgroupThreads, kThreads = kComputing + kWarpgroupThreads;
  static constexpr int kCopyRegisters = Width == 64 ? 32 : 24, kComputeRegisters = Width == 64 ? 160 : 240;
  static constexpr int kRegisters = Width == 64 ? 128 : 168;  ///< of each thread when a block starts
  static_assert(kCopyRegisters + kGroups * kComputeRegisters == (kGroups + 1) * kRegisters);
};

/// What a block processes: queries [first, end) of a head and keys from `key` to the last of these queries. Number -1
/// follows the last one. A few numbers have no queries.
struct ForwardItem {
  int number, head, first, key, end;
  TokenSpan segment;  ///< of the first query
};

/// Items are numbered from the last tile of queries to the first, for all heads each: the last tiles see the most keys.
/// A block takes the item with its own number first.
struct ForwardItems {
  int count;   ///< at most
  int* taken;  ///< items beyond the first of each block; null if there are none

  /// `end`: one past the number of the last tile.
  __device__ __forceinline__ ForwardItem item(const DocumentTiles& tiles, int end, int number) const {
    const AttentionBatch& n = tiles.n;
    const QueryTile tile = query_tile(tiles, end - 1 - number / n.heads);
    const int first = tile.tokens.begin;
    return {number, number % n.heads, first, n.first_key(first, tile.segment), tile.tokens.end, tile.segment};
  }
  /// The number of the block's next item; there may be none.
  __device__ __forceinline__ int take() const {
    return static_cast<int>(gridDim.x) + (taken ? atomicAdd(taken, 1) : 0);
  }
};

template <class T, int Width>
struct ForwardShared {
  SwizzledTile<T, Shape<Width>::kQueries, Width> q;
  SwizzledTile<T, kTileKeys, Width> k[2], v[2];
  TileGate q_gate, k_gate[2], v_gate[2];
  ForwardItem item;                      ///< passed on with q
  int end[2];                            ///< of this item and the next one
  int begin[2][Shape<Width>::kQueries];  ///< first key per query, for this item and the next one
};

/// The tensors of which boxes are copied.
struct ForwardMaps {
  target::TensorMap q, k, v;
};

/// Copies the tiles in the order in which they are multiplied, with a warp.
template <class T, int Width>
__device__ __forceinline__ void feed(const AttentionBatch& n, const ForwardMaps& maps, const ForwardItems& items,
                                     ForwardShared<T, Width>& s) {
  constexpr int kQueries = Shape<Width>::kQueries;
  const DocumentTiles tiles{n, n.queries, kQueries, cut_documents(n)};
  const NumberSpan used = tiles.used();
  const int count = (used.end - used.begin) * n.heads;
  unsigned use = 0, tile = 0;
  for (int number = static_cast<int>(blockIdx.x), next = 0; number < count; number = __shfl_sync(kAllLanes, next, 0)) {
    next = lane_id() == 0 ? items.take() : 0;
    const ForwardItem b = items.item(tiles, used.end, number);
    if (b.first >= b.end) continue;
    const int group = n.group_of(b.head);
    ptx::wait(s.q_gate.empty, (use + 1) % 2);
    if (lane_id() == 0) {
      ptx::arrive_and_expect(s.q_gate.full, sizeof s.q.v);
      copy_tile(s.q, s.q_gate, maps.q, b.head, b.first - n.queries.begin);
      s.item = b;
      s.end[use % 2] = b.end;
    }
    for (int i = lane_id(); i < kQueries; i += kWarp) {
      // A warpgroup without queries sees no tile.
      const int group_first = b.first + i - i % kWarpgroupRows, t = min(b.first + i, b.end - 1);
      s.begin[use % 2][i] =
          group_first < b.end ? n.first_key(t, t < b.segment.end ? b.segment : n.segment(t)) : b.end + kTileKeys;
    }
    __syncwarp();
    if (lane_id() == 0) ptx::arrive(s.q_gate.full);
    if (lane_id() == 0 && b.key < b.end) {  // a tile whose only query is padding sees no keys
      fill(s.k[tile % 2], s.k_gate[tile % 2], tile / 2, maps.k, group, b.key);
      int key = b.key + kTileKeys;
      for (; key < b.end; key += kTileKeys) {
        const unsigned last = tile++;
        fill(s.k[tile % 2], s.k_gate[tile % 2], tile / 2, maps.k, group, key);
        fill(s.v[last % 2], s.v_gate[last % 2], last / 2, maps.v, group, key - kTileKeys);
      }
      fill(s.v[tile % 2], s.v_gate[tile % 2], tile / 2, maps.v, group, key - kTileKeys);
      ++tile;
    }
    ++use;
  }
  ptx::wait(s.q_gate.empty, (use + 1) % 2);
  if (lane_id() > 0) return;
  s.item.number = -1;
  ptx::arrive(s.q_gate.full);
  ptx::arrive(s.q_gate.full);
}

/// Leaves out tiles of keys that the warpgroup's queries do not see.
template <class T, int Width>
__device__ __forceinline__ void pass_over(ForwardShared<T, Width>& s, unsigned& tile, unsigned end) {
  for (; tile < end; ++tile) {
    s.k_gate[tile % 2].wait(tile / 2);
    s.k_gate[tile % 2].release();
    s.v_gate[tile % 2].wait(tile / 2);
    s.v_gate[tile % 2].release();
  }
}

template <class T, int Width>
__global__ void __launch_bounds__(Shape<Width>::kThreads, 1)
    attention_warpgroups(AttentionBatch n, AttentionTensors<T> x, ForwardItems items,
                         const __grid_constant__ ForwardMaps maps) {
  using Sizes = Shape<Width>;
  auto& s = shared_memory<ForwardShared<T, Width>>();
  if (threadIdx.x == Sizes::kComputing) {
    s.q_gate.open(Sizes::kWarps, 2);
    for (int i = 0; i < 2; ++i) s.k_gate[i].open(Sizes::kWarps), s.v_gate[i].open(Sizes::kWarps);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  if (threadIdx.x >= Sizes::kComputing) {
    ptx::lower_registers<Sizes::kCopyRegisters>();
    if (warp_id() == Sizes::kWarps) feed(n, maps, items, s);
    return;
  }
  ptx::raise_registers<Sizes::kComputeRegisters>();
  const int row = warp_id() * 16;
  const float scale = n.score_scale<Scores::plain>() * kLog2e;
  unsigned tile = 0;
  for (unsigned use = 0;; ++use) {
    s.q_gate.wait(use);
    const ForwardItem& b = s.item;
    if (b.number < 0) return;
    const int first = b.first, lane_row = first + row + lane_id() / 4, head = b.head;
    int key = b.key;
    const int* begins = s.begin[use % 2];
    const int group_row = row - row % kWarpgroupRows;
    const unsigned end = tile + ceil_div(b.end - key, kTileKeys);
    // The tiles [`tile`, stop) that the warpgroup's queries see.
    const unsigned start = tile + max(begins[group_row] - key, 0) / kTileKeys,
                   stop = min(end, tile + (first + group_row + kWarpgroupRows - 1 - key) / kTileKeys + 1);
    key += static_cast<int>(start - tile) * kTileKeys;

    float scores[1][kTileKeys / 8][4], out[1][Width / 8][4] = {}, fade[1][2];
    std::uint32_t p[1][kTileKeys / 16][4];
    RowSoftmax<1, kTileKeys> state{};
    state.max[0][0] = state.max[0][1] = -INFINITY;
    // Converts the scores of the tile at `key` to weights; returns whether `out` has to be multiplied by `fade`.
    const auto weigh = [&] {
      if (key + kTileKeys - 1 > first + row || key < s.begin[use % 2][row + 15])
        mask_keys(scores, s.begin[use % 2] + row + lane_id() / 4, lane_row, key);
      const bool fades = state.raise(scores, scale, fade);
      for (int h = 0; h < 2; ++h) state.sum[0][h] *= fade[0][h];
      state.weigh(scores, scale);
      return __any_sync(kAllLanes, fades);
    };
    if (start < stop) {
      pass_over(s, tile, start);
      s.k_gate[tile % 2].wait(tile / 2);
      ptx::wgmma_fence();
      start_rows(scores[0], s.q, s.k[tile % 2]);
      ptx::wgmma_wait<0>();
      ptx::wgmma_settle(scores[0]);
      s.k_gate[tile % 2].release();
      weigh();
      fragments_of<T>(p, scores);
      for (++tile; tile < stop; ++tile) {
        key += kTileKeys;
        const unsigned last = tile - 1;
        TileGate &k_gate = s.k_gate[tile % 2], &v_gate = s.v_gate[last % 2];
        k_gate.wait(tile / 2);
        v_gate.wait(last / 2);
        ptx::wgmma_settle(scores[0]);
        ptx::wgmma_settle(out[0]);
        ptx::wgmma_settle(p[0]);
        ptx::wgmma_fence();
        start_rows(scores[0], s.q, s.k[tile % 2]);
        start_columns(out[0], p[0], s.v[last % 2]);
        ptx::wgmma_wait<1>();
        ptx::wgmma_settle(scores[0]);
        k_gate.release();
        if (weigh()) {  // this branch also keeps the assembler from waiting before it computes weights
          ptx::wgmma_wait<0>();
          ptx::wgmma_settle(out[0]);
          scale_rows(out, fade);
        }
        ptx::wgmma_wait<0>();
        ptx::wgmma_settle(out[0]);
        ptx::wgmma_settle(scores[0]);
        v_gate.release();
        fragments_of<T>(p, scores);
      }
      s.q_gate.release();
      TileGate& v_gate = s.v_gate[(tile - 1) % 2];
      v_gate.wait((tile - 1) / 2);
      ptx::wgmma_settle(out[0]);
      ptx::wgmma_settle(p[0]);
      ptx::wgmma_fence();
      start_columns(out[0], p[0], s.v[(tile - 1) % 2]);
      ptx::wgmma_wait<0>();
      ptx::wgmma_settle(out[0]);
      v_gate.release();
    } else {
      s.q_gate.release();
    }
    pass_over(s, tile, end);
    put_results<T, Scores::plain>(n, x, {lane_row, s.end[use % 2], head}, state, out);
  }
}

}  // namespace

void attention_tma(Ctx& ctx, const Attention& a) {
  const AttentionBatch batch = batch_of(a);
  if (batch.rows() == 0) return;
  const auto run = [&]<class T, int Width>() {
    using Sizes = Shape<Width>;
    const AttentionTensors<T> x = tensors_of<T>(a);
    const ForwardMaps maps{.q = map_of(x.q, {batch.rows(), batch.heads, Width}, Sizes::kQueries),
                           .k = map_of(x.k, {batch.tokens, batch.groups, Width}, kTileKeys),
                           .v = map_of(x.v, {batch.tokens, batch.groups, Width}, kTileKeys)};
    ForwardItems items{DocumentTiles::numbers(batch, batch.rows(), Sizes::kQueries) * batch.heads, nullptr};
    const int blocks = std::min(items.count, ctx.kept<Multiprocessors>().count);
    if (items.count > blocks) {
      items.taken = reinterpret_cast<int*>(ctx.scratch(sizeof(int)));
      ctx.stream().fill(items.taken, 0, sizeof(int));
    }
    launch(ctx, "attention", attention_warpgroups<T, Width>,
           {static_cast<unsigned>(blocks), Sizes::kThreads, sizeof(ForwardShared<T, Width>)}, batch, x, items, maps);
  };
  const auto of_width = [&]<class T>() {
    batch.width == 64 ? run.template operator()<T, 64>() : run.template operator()<T, 128>();
  };
  a.q.dtype == DType::bf16 ? of_width.operator()<Bf16>() : of_width.operator()<F16>();
}

}  // namespace qtrain::ops
