#include "kernels/cuda/attention_gradient.cuh"
#include "kernels/cuda/attention_wgmma.cuh"

/// dk and dv as in attention_dkdv_mma.cu, on the tensor cores of sm_90a: 128 keys per block. Scores become weights
/// while dp is computed, and dp becomes ds while dv is accumulated.
namespace qtrain::ops {
namespace {

/// Queries per tile: as many as fit in registers.
template <int Width>
inline constexpr int kDkdvQueries = Width == 64 ? 128 : 64;

/// A tile of queries, with lse and delta.
template <class T, int Width>
struct DkdvQueries {
  SwizzledTile<T, kDkdvQueries<Width>, Width> q, dy;
  alignas(8) float lse[kDkdvQueries<Width>];
  alignas(8) float delta[kDkdvQueries<Width>];
};
template <class T, int Width>
struct DkdvShared {
  SwizzledTile<T, kBlockRows, Width> k, v;
  DkdvQueries<T, Width> queries[2];
  QueryBounds bounds;    ///< kept in shared memory during the loop, to save registers
  int last[kBlockRows];  ///< last query that sees each key
  int group, first;      ///< the block's position
};

template <class T, int Width>
__device__ __forceinline__ void copy_queries(DkdvQueries<T, Width>& to, const AttentionBatch& n,
                                             const GradientTensors<T>& x, const QueryWalk& at, int end) {
  const std::int64_t stride = std::int64_t{n.heads} * Width;
  copy_rows(to.q, {x.q + n.query(0, at.head), stride, end, Width}, at.query);
  copy_rows(to.dy, {x.dy + n.query(0, at.head), stride, end, Width}, at.query);
  copy_sums(to.lse, to.delta, n, x, at, end);
}

template <class T, int Width>
__global__ void __launch_bounds__(kBlockThreads) attention_dkdv_warpgroups(AttentionBatch n, GradientTensors<T> x) {
  constexpr int kQueries = kDkdvQueries<Width>;
  auto& s = shared_memory<DkdvShared<T, Width>>();
  const int group = x.first_group + static_cast<int>(blockIdx.x) % x.pass_groups, share = n.heads / n.groups;
  const int first = static_cast<int>(blockIdx.x) / x.pass_groups * kBlockRows, row = warp_id() * 16;
  const std::int64_t stride = std::int64_t{n.groups} * Width;
  copy_rows(s.k, {x.k + n.key(0, group), stride, n.tokens, Width}, first);
  copy_rows(s.v, {x.v + n.key(0, group), stride, n.tokens, Width}, first);
  const TokenSpan keys{first, min(first + kBlockRows, n.tokens)};
  const QueryBounds bounds = queries_of(n, keys, group * share + share - 1);
  QueryWalk at{bounds.first, group * share};
  if (!at.done(bounds)) copy_queries(s.queries[0], n, x, at, bounds.end);
  ptx::cp_async_commit();
  load_last_queries(s.last, n, keys);
  if (threadIdx.x == 0) s.bounds = bounds, s.group = group, s.first = first;
  __syncthreads();

  const int lane_row = row + lane_id() / 4, warp_last = first + row + 15, warp_end = s.last[row];
  const float scale = n.score_scale<Scores::plain>() * kLog2e;
  float dk[1][Width / 8][4] = {}, dv[1][Width / 8][4] = {};
  for (int stage = 0; !at.done(s.bounds); stage ^= 1) {
    const QueryWalk next = at.next(s.bounds, kQueries);
    const DkdvQueries<T, Width>& tile = s.queries[stage];
    float p[1][kQueries / 8][4], dp[1][kQueries / 8][4];
    std::uint32_t weights[1][kQueries / 16][4], ds[1][kQueries / 16][4];
    wait_for_copies();
    ptx::wgmma_fence();
    start_rows(p[0], s.k, tile.q);
    start_rows(dp[0], s.v, tile.dy);
    if (!next.done(s.bounds)) copy_queries(s.queries[stage ^ 1], n, x, next, s.bounds.end);
    ptx::cp_async_commit();
    ptx::wgmma_wait<1>();
    ptx::wgmma_settle(p[0]);
    if (at.query < warp_last || at.query + kQueries - 1 > warp_end)
      mask_queries(p, s.last + lane_row, first + lane_row, at.query);
    weigh_columns(p, tile.lse, scale);
    fragments_of<T>(weights, p);
    ptx::wgmma_settle(weights[0]);
    ptx::wgmma_settle(dv[0]);
    ptx::wgmma_fence();
    start_columns(dv[0], weights[0], tile.dy);
    ptx::wgmma_wait<1>();
    ptx::wgmma_settle(dp[0]);
    differentiate_columns(dp[0], p[0], tile.delta);
    fragments_of<T>(ds, dp);
    ptx::wgmma_settle(ds[0]);
    ptx::wgmma_settle(dk[0]);
    ptx::wgmma_fence();
    start_columns(dk[0], ds[0], tile.q);
    ptx::wgmma_wait<0>();
    ptx::wgmma_settle(dv[0]);
    ptx::wgmma_settle(dk[0]);
    at = next;
  }
  ptx::cp_async_wait<0>();
  for_rows<1>([&](int i, int h) {
    const int t = s.first + lane_row + 8 * h;
    if (t >= n.tokens) return;
    if (x.dk.data) put_row(x.dk, n.key(t, s.group), dk[i], h, n.scale, Width);
    if (x.dv.data) put_row(x.dv, n.key(t, s.group), dv[i], h, 1, Width);
  });
}

}  // namespace

template <class T>
void attention_dkdv_wgmma(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x) {
  const auto blocks = static_cast<unsigned>(ceil_div(batch.tokens, kBlockRows) * x.pass_groups);
  const auto run = [&]<int Width>() {
    launch(ctx, "attention_dkdv", attention_dkdv_warpgroups<T, Width>,
           {blocks, kBlockThreads, sizeof(DkdvShared<T, Width>)}, batch, x);
  };
  batch.width == 64 ? run.template operator()<64>() : run.template operator()<128>();
}
template void attention_dkdv_wgmma(Ctx&, const AttentionBatch&, const GradientTensors<Bf16>&);
template void attention_dkdv_wgmma(Ctx&, const AttentionBatch&, const GradientTensors<F16>&);

}  // namespace qtrain::ops
