#include "kernels/cuda/attention_gradient.cuh"
#include "kernels/cuda/attention_wgmma.cuh"

/// dq as in attention_dq_mma.cu, on the tensor cores of sm_90a. Scores become weights while dp is computed.
namespace qtrain::ops {
namespace {

constexpr int kKeys = 128;  ///< per tile: as many as fit in registers

template <class T, int Width>
struct DqShared {
  SwizzledTile<T, kBlockRows, Width> q, dy;
  SwizzledTile<T, kKeys, Width> k[2], v[2];
  QueryRows<kBlockRows> rows;
};

/// Calls f(j, e, h) for the elements c[j][e] of an accumulator, in the lane's rows h = 0 and 1.
template <int N, class F>
__device__ __forceinline__ void for_elements(const F& f) {
#pragma unroll
  for (int j = 0; j < N; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) f(j, e, e / 2);
}

template <class T, int Width>
__global__ void __launch_bounds__(kBlockThreads) attention_dq_warpgroups(AttentionBatch n, GradientTensors<T> x) {
  constexpr int kColumns = kKeys / 8;
  auto& s = shared_memory<DqShared<T, Width>>();
  // The last tiles see the most keys, so they start first.
  const int share = n.heads / n.groups, heads = x.pass_groups * share;
  const int head = x.first_group * share + static_cast<int>(blockIdx.x) % heads, group = n.group_of(head);
  const int first = n.queries.begin + (static_cast<int>(gridDim.x - 1 - blockIdx.x) / heads) * kBlockRows;
  const int row = warp_id() * 16, lane_row = row + lane_id() / 4, end = min(first + kBlockRows, n.queries.end);
  const std::int64_t q_stride = std::int64_t{n.heads} * Width, k_stride = std::int64_t{n.groups} * Width;
  const HeadRows<T> k{x.k + n.key(0, group), k_stride, end, Width}, v{x.v + n.key(0, group), k_stride, end, Width};
  const TokenSpan segment = n.segment(first);
  int key = n.first_key(first, segment);
  copy_rows(s.q, {x.q + n.query(0, head), q_stride, n.queries.end, Width}, first);
  copy_rows(s.dy, {x.dy + n.query(0, head), q_stride, n.queries.end, Width}, first);
  copy_rows(s.k[0], k, key);
  copy_rows(s.v[0], v, key);
  ptx::cp_async_commit();
  load_rows(s.rows, n, x, head, first, segment);
  __syncthreads();

  const int warp_first = first + row, warp_begin = s.rows.begin[row + 15];
  const float scale = n.score_scale<Scores::plain>() * kLog2e;
  const float lse[2] = {s.rows.lse[lane_row], s.rows.lse[lane_row + 8]};
  const float delta[2] = {s.rows.delta[lane_row], s.rows.delta[lane_row + 8]};
  float out[1][Width / 8][4] = {};
  for (int stage = 0; key < end; key += kKeys, stage ^= 1) {
    float p[1][kColumns][4], dp[1][kColumns][4];
    std::uint32_t ds[1][kColumns / 2][4];
    wait_for_copies();
    ptx::wgmma_fence();
    start_rows(p[0], s.q, s.k[stage]);
    start_rows(dp[0], s.dy, s.v[stage]);
    if (key + kKeys < end) {
      copy_rows(s.k[stage ^ 1], k, key + kKeys);
      copy_rows(s.v[stage ^ 1], v, key + kKeys);
    }
    ptx::cp_async_commit();
    ptx::wgmma_wait<1>();
    ptx::wgmma_settle(p[0]);
    const auto weigh = [&] {
      for_elements<kColumns>([&](int j, int e, int h) { p[0][j][e] = ptx::exp2(p[0][j][e] * scale - lse[h]); });
    };
    // Called in both branches: within one basic block, the assembler would wait before it computes the weights.
    if (key + kKeys - 1 > warp_first || key < warp_begin) {
      mask_keys(p, s.rows.begin + lane_row, first + lane_row, key);
      weigh();
    } else {
      weigh();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_settle(dp[0]);
    for_elements<kColumns>([&](int j, int e, int h) { dp[0][j][e] = p[0][j][e] * (dp[0][j][e] - delta[h]); });
    fragments_of<T>(ds, dp);
    ptx::wgmma_settle(ds[0]);
    ptx::wgmma_settle(out[0]);
    ptx::wgmma_fence();
    start_columns(out[0], ds[0], s.k[stage]);
    ptx::wgmma_wait<0>();
    ptx::wgmma_settle(out[0]);
  }
  ptx::cp_async_wait<0>();
  for_rows<1>([&](int i, int h) {
    const int t = first + lane_row + 8 * h;
    if (t < n.queries.end) put_row(x.dq, n.query(t, head), out[i], h, n.scale, Width);
  });
}

}  // namespace

template <class T>
void attention_dq_wgmma(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x) {
  const auto blocks =
      static_cast<unsigned>(ceil_div(batch.rows(), kBlockRows) * x.pass_groups * (batch.heads / batch.groups));
  const auto run = [&]<int Width>() {
    launch(ctx, "attention_dq", attention_dq_warpgroups<T, Width>, {blocks, kBlockThreads, sizeof(DqShared<T, Width>)},
           batch, x);
  };
  batch.width == 64 ? run.template operator()<64>() : run.template operator()<128>();
}
template void attention_dq_wgmma(Ctx&, const AttentionBatch&, const GradientTensors<Bf16>&);
template void attention_dq_wgmma(Ctx&, const AttentionBatch&, const GradientTensors<F16>&);

}  // namespace qtrain::ops
