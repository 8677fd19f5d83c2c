#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/attention_tma.cuh"

/// y = softmax(scale q k^T) v on the tensor cores of sm_90a, for heads of 128 elements. Each block processes 128
/// queries of one head, 64 in each of two warpgroups, and loops over tiles of keys. While the weights of one tile are
/// computed, the tensor cores multiply those of the previous tile by its values. A thread of a third warpgroup, which
/// needs few registers, copies the tiles.
namespace qtrain::ops {
namespace {

inline constexpr int kTileKeys = 128;

template <class T, int Width>
struct TmaShared {
  SwizzledTile<T, kBlockRows, Width> q;
  SwizzledTile<T, kTileKeys, Width> k[2], v[2];
  TileGate q_gate, k_gate[2], v_gate[2];
  int begin[kBlockRows];  ///< first key per query
};

/// The tensors of which boxes are copied.
struct ForwardMaps {
  target::TensorMap q, k, v;
};

/// What a block processes: queries from `first` on, and keys [`key`, `end`).
struct ForwardBlock {
  int head, group, first, key, end;
  TokenSpan segment;

  __device__ __forceinline__ explicit ForwardBlock(const AttentionBatch& n)
      : head(static_cast<int>(blockIdx.x) % n.heads),
        group(n.group_of(head)),
        // The last tiles see the most keys, so they start first.
        first(n.queries.begin + (static_cast<int>(gridDim.x - 1 - blockIdx.x) / n.heads) * kBlockRows),
        end(min(first + kBlockRows, n.queries.end)),
        segment(n.segment(first)) {
    key = n.first_key(first, segment);
  }
};

/// Copies the tiles in the order in which they are multiplied.
template <class T, int Width>
__device__ __forceinline__ void feed(const AttentionBatch& n, const ForwardMaps& maps, TmaShared<T, Width>& s) {
  const ForwardBlock b(n);
  fill(s.q, s.q_gate, 0, maps.q, b.head, b.first - n.queries.begin);
  fill(s.k[0], s.k_gate[0], 0, maps.k, b.group, b.key);
  int key = b.key, tile = 0;
  for (key += kTileKeys; key < b.end; key += kTileKeys) {
    const int last = tile++;
    fill(s.k[tile % 2], s.k_gate[tile % 2], tile / 2, maps.k, b.group, key);
    fill(s.v[last % 2], s.v_gate[last % 2], last / 2, maps.v, b.group, key - kTileKeys);
  }
  fill(s.v[tile % 2], s.v_gate[tile % 2], tile / 2, maps.v, b.group, key - kTileKeys);
}

template <class T, int Width>
__global__ void __launch_bounds__(kTmaThreads, 1)
    attention_warpgroups(AttentionBatch n, AttentionTensors<T> x, const __grid_constant__ ForwardMaps maps) {
  auto& s = shared_memory<TmaShared<T, Width>>();
  if (threadIdx.x == kBlockThreads) {
    s.q_gate.open();
    for (int i = 0; i < 2; ++i) s.k_gate[i].open(), s.v_gate[i].open();
    ptx::fence_proxy_async();
  }
  __syncthreads();
  if (threadIdx.x >= kBlockThreads) {
    ptx::lower_registers<kCopyRegisters>();
    if (threadIdx.x == kBlockThreads) feed(n, maps, s);
    return;
  }
  ptx::raise_registers<kComputeRegisters>();
  const ForwardBlock b(n);
  const int row = warp_id() * 16;
  if (lane_id() < 16) {
    const int t = b.first + row + lane_id();
    s.begin[row + lane_id()] = t < n.queries.end ? n.first_key(t, t < b.segment.end ? b.segment : n.segment(t)) : t + 1;
  }
  __syncwarp();

  float scores[1][kTileKeys / 8][4], out[1][Width / 8][4] = {}, fade[1][2];
  std::uint32_t p[1][kTileKeys / 16][4];
  RowSoftmax<1, kTileKeys> state{};
  const int lane_row = b.first + row + lane_id() / 4;
  state.max[0][0] = state.max[0][1] = -INFINITY;
  const int* begin = s.begin + row + lane_id() / 4;
  const int warp_begin = s.begin[row + 15];
  const float scale = n.score_scale<Scores::plain>() * kLog2e;
  int key = b.key, tile = 0;
  // Converts the scores of the tile at `key` to weights; returns whether `out` has to be multiplied by `fade`.
  const auto weigh = [&] {
    if (key + kTileKeys - 1 > b.first + row || key < warp_begin) mask_keys(scores, begin, lane_row, key);
    const bool fades = state.raise(scores, scale, fade);
    for (int h = 0; h < 2; ++h) state.sum[0][h] *= fade[0][h];
    state.weigh(scores, scale);
    return __any_sync(kAllLanes, fades);
  };

  s.q_gate.wait(0);
  s.k_gate[0].wait(0);
  ptx::wgmma_fence();
  start_rows(scores[0], s.q, s.k[0]);
  ptx::wgmma_wait<0>();
  ptx::wgmma_settle(scores[0]);
  s.k_gate[0].release();
  weigh();
  fragments_of<T>(p, scores);
  for (key += kTileKeys; key < b.end; key += kTileKeys) {
    const int last = tile++;
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
  s.v_gate[tile % 2].wait(tile / 2);
  ptx::wgmma_settle(out[0]);
  ptx::wgmma_settle(p[0]);
  ptx::wgmma_fence();
  start_columns(out[0], p[0], s.v[tile % 2]);
  ptx::wgmma_wait<0>();
  ptx::wgmma_settle(out[0]);
  put_results<T, Scores::plain>(n, x, lane_row, b.head, state, out);
}

}  // namespace

void attention_tma(Ctx& ctx, const Attention& a) {
  const AttentionBatch batch = batch_of(a);
  if (batch.rows() == 0) return;
  const auto run = [&]<class T>() {
    constexpr int kWidth = 128;
    const AttentionTensors<T> x = tensors_of<T>(a);
    const ForwardMaps maps{.q = map_of(x.q, {batch.rows(), batch.heads, kWidth}, kBlockRows),
                           .k = map_of(x.k, {batch.tokens, batch.groups, kWidth}, kTileKeys),
                           .v = map_of(x.v, {batch.tokens, batch.groups, kWidth}, kTileKeys)};
    launch(ctx, "attention", attention_warpgroups<T, kWidth>,
           {static_cast<unsigned>(ceil_div(batch.rows(), kBlockRows) * batch.heads), kTmaThreads,
            sizeof(TmaShared<T, kWidth>)},
           batch, x, maps);
  };
  a.q.dtype == DType::bf16 ? run.operator()<Bf16>() : run.operator()<F16>();
}

}  // namespace qtrain::ops
