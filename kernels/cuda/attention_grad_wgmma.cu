#include "kernels/cuda/attention_tma.cuh"
#include "kernels/cuda/attention_turns.cuh"

/// dq, dk and dv in one kernel of five GEMMs as in attention_grad_mma.cu, on the tensor cores of sm_90a. Each of two
/// warpgroups has half of the block's keys. In a third one, a warp copies the tiles, and a thread waits for the block's
/// turns to add to dq and passes them on.
namespace qtrain::ops {
namespace {

/// A warpgroup computes 64 columns of a tile of dq. If heads have no more, the two take turns.
inline constexpr int kColumns = 64;

/// A tile of queries, with lse and delta.
template <class T, int Width>
struct GradQueries {
  SwizzledTile<T, kSumQueries, Width> q, dy;
  alignas(8) float lse[kSumQueries];
  alignas(8) float delta[kSumQueries];
};
template <class T, int Width>
struct GradShared {
  SwizzledTile<T, kBlockRows, Width> k, v;
  GradQueries<T, Width> queries[2];
  SwizzledTile<T, kBlockRows, kSumQueries> ds[2];  ///< a row for each key
  TileGate key_gate, query_gate[2];
  TileGate turn[2];     ///< full: it is the block's turn; empty: its part has been added
  ptx::Mbarrier whole;  ///< all warps have stored their part of ds
  KeyItem item;
  int last[kBlockRows];  ///< last query that sees each key
};
static_assert(kBlockRows == kItemKeys);

/// The tensors of which boxes are copied.
struct GradMaps {
  target::TensorMap q, dy, k, v;
};

/// Copies the tiles in the order in which they are multiplied, with a warp.
template <class T, int Width>
__device__ __forceinline__ void feed(const Turns<T>& turns, const GradMaps& maps, GradShared<T, Width>& s) {
  constexpr int kQueries = kSumQueries, kValues = kQueries / kWarp;
  const AttentionBatch& n = turns.n;
  const auto& x = turns.x;
  if (lane_id() == 0) {
    ptx::arrive_and_expect(s.key_gate.full, sizeof s.k + sizeof s.v);
    copy_tile(s.k, s.key_gate, maps.k, s.item.group, s.item.first);
    copy_tile(s.v, s.key_gate, maps.v, s.item.group, s.item.first);
  }
  unsigned use = 0;
  for (QueryTileAt at = turns.first(); !turns.done(at); at = turns.next(at), ++use) {
    GradQueries<T, Width>& to = s.queries[use % 2];
    TileGate& gate = s.query_gate[use % 2];
    float lse[kValues], delta[kValues];
    const int row = turns.query(at) - n.queries.begin;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int t = row + i * kWarp + lane_id();
      const bool there = t < n.rows();
      lse[i] = there ? x.lse[std::int64_t{at.head} * n.rows() + t] : 0;
      delta[i] = there ? x.delta[std::int64_t{at.head - x.first_group * (n.heads / n.groups)} * n.rows() + t] : 0;
    }
    ptx::wait(gate.empty, (use / 2 + 1) % 2);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      to.lse[i * kWarp + lane_id()] = lse[i];
      to.delta[i * kWarp + lane_id()] = delta[i];
    }
    __syncwarp();
    if (lane_id() == 0) {
      ptx::arrive_and_expect(gate.full, sizeof to.q + sizeof to.dy);
      copy_tile(to.q, gate, maps.q, at.head, row);
      copy_tile(to.dy, gate, maps.dy, at.head, row);
    }
  }
}

/// Waits for each turn of the block, and passes it on when all warps have added their part. If warpgroups take turns,
/// one may reach the gate of the next step while the other still waits for this one, so steps have two gates.
template <class T, int Width>
__device__ __forceinline__ void keep_turns(const Turns<T>& turns, GradShared<T, Width>& s) {
  unsigned use = 0;
  for (QueryTileAt at = turns.first(); !turns.done(at); at = turns.next(at), ++use) {
    turns.wait(at);
    TileGate& turn = s.turn[use % 2];
    ptx::arrive(turn.full);
    ptx::wait(turn.empty, use / 2 % 2);
    if (!turns.is_last(at)) turns.pass_on(turns.sum_of(at));
  }
}

/// Stores ds of the calling warp's 16 keys.
template <class T, int K>
__device__ __forceinline__ void put_fragments(SwizzledTile<T, kBlockRows, 16 * K>& to,
                                              const std::uint32_t (&ds)[K][4]) {
  static_assert(16 * K == kSwizzledWidth);
  const int row = lane_id() / 4, column = lane_id() % 4 * 2;
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      T* at = &to.v[0][warp_id() * 16 + row + i % 2 * 8][(2 * k + i / 2 ^ row) * kChunk + column];
      *reinterpret_cast<std::uint32_t*>(at) = ds[k][i];
    }
}

template <class T, int Width>
__global__ void __launch_bounds__(kTmaThreads, 1)
    attention_grad_warpgroups(AttentionBatch n, SummedGradients<T> x, const __grid_constant__ GradMaps maps) {
  constexpr int kQueries = kSumQueries;
  auto& s = shared_memory<GradShared<T, Width>>();
  const Turns<T> turns{n, x, s.item};
  if (threadIdx.x == kBlockThreads) {
    turns.take();
    s.key_gate.open(), s.query_gate[0].open(), s.query_gate[1].open();
    s.turn[0].open(), s.turn[1].open();
    ptx::init(s.whole, kBlockWarps);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  if (s.item.first >= s.item.key_end) return;
  if (threadIdx.x >= kBlockThreads) {
    ptx::lower_registers<kCopyRegisters>();
    if (warp_id() == kBlockWarps) feed(turns, maps, s);
    if (threadIdx.x == kBlockThreads + kWarp) keep_turns(turns, s);
    return;
  }
  ptx::raise_registers<kComputeRegisters>();
  const int row = warp_id() * 16, lane_row = row + lane_id() / 4, first = s.item.first;
  if (lane_id() < 16)
    s.last[row + lane_id()] = last_query_of(n, first + row + lane_id(), s.item.key_end, n.segment(first));
  __syncwarp();
  const int warp_last = first + row + 15, warp_end = s.last[row];
  // By a shuffle, so that the assembler keeps what depends on it in registers that the warp shares.
  const int part = __shfl_sync(kAllLanes, warpgroup_id(), 0);
  const float scale = n.score_scale<Scores::plain>() * kLog2e;
  float dk[1][Width / 8][4] = {}, dv[1][Width / 8][4] = {};
  s.key_gate.wait(0);
  unsigned use = 0;
  for (QueryTileAt at = turns.first(); !turns.done(at); at = turns.next(at), ++use) {
    const GradQueries<T, Width>& tile = s.queries[use % 2];
    TileGate& gate = s.query_gate[use % 2];
    const int query = turns.query(at);
    float p[1][kQueries / 8][4], dp[1][kQueries / 8][4];
    std::uint32_t weights[1][kQueries / 16][4], fragments[1][kQueries / 16][4];
    int half = part;
    ptx::opaque(half);
    gate.wait(use / 2);
    ptx::wgmma_fence();
    start_rows(p[0], s.k, tile.q, half);
    start_rows(dp[0], s.v, tile.dy, half);
    ptx::wgmma_wait<1>();
    ptx::wgmma_settle(p[0]);
    if (query < warp_last || query + kQueries - 1 > warp_end)
      mask_queries(p, s.last + lane_row, first + lane_row, query);
    weigh_columns(p, tile.lse, scale);
    fragments_of<T>(weights, p);
    ptx::wgmma_settle(weights[0]);
    ptx::wgmma_settle(dv[0]);
    ptx::wgmma_fence();
    start_columns(dv[0], weights[0], tile.dy);
    ptx::wgmma_wait<1>();
    ptx::wgmma_settle(dp[0]);
    differentiate_columns(dp[0], p[0], tile.delta);
    fragments_of<T>(fragments, dp);
    put_fragments(s.ds[use % 2], fragments[0]);
    ptx::fence_proxy_async();
    arrive_as_warp(s.whole);
    ptx::wgmma_settle(fragments[0]);
    ptx::wgmma_settle(dk[0]);
    ptx::wgmma_fence();
    start_columns(dk[0], fragments[0], tile.q);
    if (Width > kColumns || part == static_cast<int>(use % 2)) {
      const int across = Width > kColumns ? part : 0;
      // The sum so far is read while dv and dk are computed.
      float dq[1][kColumns / 8][4] = {};
      float* sums = x.sums.data + std::int64_t{turns.sum_row(at)} * Width + across * kQueries * kColumns +
                    static_cast<int>(threadIdx.x) % kWarpgroupThreads * 4;
      s.turn[use % 2].wait(use / 2);
      if (!turns.is_first(at))
#pragma unroll
        for (int j = 0; j < kColumns / 8; ++j) {
          const Pack<float, 4> values = load_pack<4>(sums + j * kWarpgroupThreads * 4);
#pragma unroll
          for (int e = 0; e < 4; ++e) dq[0][j][e] = values.v[e];
        }
      ptx::wait(s.whole, use % 2);
      ptx::wgmma_settle(dq[0]);
      ptx::wgmma_fence();
      start_transposed(dq[0], s.ds[use % 2], s.k, across);
      ptx::wgmma_wait<1>();
      ptx::wgmma_settle(dv[0]);
      ptx::wgmma_settle(dk[0]);
      gate.release();
      ptx::wgmma_wait<0>();
      ptx::wgmma_settle(dq[0]);
      if (!turns.is_last(at)) {
#pragma unroll
        for (int j = 0; j < kColumns / 8; ++j)
          store_pack<4>(sums + j * kWarpgroupThreads * 4,
                        Pack<float, 4>{{dq[0][j][0], dq[0][j][1], dq[0][j][2], dq[0][j][3]}});
      } else {
        for_rows<1>([&](int i, int h) {
          const int t = query + lane_row % kQueries + 8 * h;
          if (t < s.item.query_end) put_row(x.dq, n.query(t, at.head) + across * kColumns, dq[i], h, n.scale, kColumns);
        });
      }
    } else {
      ptx::wgmma_wait<0>();
      ptx::wgmma_settle(dv[0]);
      ptx::wgmma_settle(dk[0]);
      gate.release();
      ptx::wait(s.whole, use % 2);
    }
    s.turn[use % 2].release();
  }
  for_rows<1>([&](int i, int h) {
    const int t = first + lane_row + 8 * h;
    if (t >= s.item.key_end) return;
    put_row(x.dk, n.key(t, s.item.group), dk[i], h, n.scale, Width);
    put_row(x.dv, n.key(t, s.item.group), dv[i], h, 1, Width);
  });
}

}  // namespace

template <class T>
void attention_grad_wgmma(Ctx& ctx, const AttentionBatch& batch, const SummedGradients<T>& x) {
  const auto blocks = static_cast<unsigned>(x.sums.key_tiles * x.pass_groups);
  const auto run = [&]<int Width>() {
    const TokenShape queries{batch.rows(), batch.heads, Width}, keys{batch.tokens, batch.groups, Width};
    const GradMaps maps{.q = map_of(x.q, queries, kSumQueries),
                        .dy = map_of(x.dy, queries, kSumQueries),
                        .k = map_of(x.k, keys, kBlockRows),
                        .v = map_of(x.v, keys, kBlockRows)};
    launch(ctx, "attention_grad", attention_grad_warpgroups<T, Width>,
           {blocks, kTmaThreads, sizeof(GradShared<T, Width>)}, batch, x, maps);
  };
  batch.width == 64 ? run.template operator()<64>() : run.template operator()<128>();
}
template void attention_grad_wgmma(Ctx&, const AttentionBatch&, const SummedGradients<Bf16>&);
template void attention_grad_wgmma(Ctx&, const AttentionBatch&, const SummedGradients<F16>&);

}  // namespace qtrain::ops
