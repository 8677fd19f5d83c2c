#include "kernels/cuda/attention_gradient.cuh"

/// dv_j = sum_i p_ij dy_i and dk_j = scale sum_i ds_ij q_i (see attention_dq_mma.cu), over the queries i of all heads
/// that share the key head, in a fixed order. Each block processes one tile of keys and loops over tiles of queries.
/// Scores are computed transposed, with keys as rows, so that p^T and ds^T are left operands in the register layout in
/// which they were computed.
namespace qtrain::ops {
namespace {

/// The results that a launch computes: for the widest heads, both do not fit in the registers.
enum class Part : std::uint8_t { both, keys, values };

/// Fragments of 16 keys per warp, queries per tile, and number of query tiles that fit in shared memory.
template <int Width>
struct Shape {
  static constexpr int kFragments = 1, kQueries = Width <= 96 ? 64 : Width == 128 ? 48 : 32;
  static constexpr int kStages = Width <= 128 ? 2 : 1;
  static constexpr int kKeys = 16 * kFragments * kAttentionWarps;
};

/// A tile of queries, with lse and delta.
template <class T, int Width>
struct Queries {
  Tile<T, Shape<Width>::kQueries, Width> q, dy;
  alignas(8) float lse[Shape<Width>::kQueries];
  alignas(8) float delta[Shape<Width>::kQueries];
};
template <class T, int Width>
struct Shared {
  Tile<T, Shape<Width>::kKeys, Width> k, v;
  Queries<T, Width> queries[Shape<Width>::kStages];
  QueryBounds bounds;             ///< kept in shared memory during the loop, to save registers
  int last[Shape<Width>::kKeys];  ///< last query that sees each key
  int group, first;               ///< the block's position
};

template <class T, int Width>
__device__ __forceinline__ void copy_queries(Queries<T, Width>& to, const AttentionBatch& n,
                                             const GradientTensors<T>& x, const QueryWalk& at, int end) {
  const std::int64_t stride = std::int64_t{n.heads} * n.width;
  copy_rows(to.q, {x.q + n.query(0, at.head), stride, end, n.width}, at.query);
  copy_rows(to.dy, {x.dy + n.query(0, at.head), stride, end, n.width}, at.query);
  copy_sums(to.lse, to.delta, n, x, at, end);
}

template <class T, int Width, Part P, Scores S>
__global__ void __launch_bounds__(kAttentionThreads) attention_dkdv_tile(AttentionBatch n, GradientTensors<T> x) {
  using Sizes = Shape<Width>;
  constexpr int kM = Sizes::kFragments, kQueries = Sizes::kQueries, kColumns = Width / 8;
  auto& s = shared_memory<Shared<T, Width>>();
  const int group = x.first_group + static_cast<int>(blockIdx.x) % x.pass_groups, share = n.heads / n.groups;
  const int first = static_cast<int>(blockIdx.x) / x.pass_groups * Sizes::kKeys, row = warp_id() * 16 * kM;
  const std::int64_t stride = std::int64_t{n.groups} * n.width;
  copy_rows(s.k, {x.k + n.key(0, group), stride, n.tokens, n.width}, first);
  if constexpr (P != Part::values) copy_rows(s.v, {x.v + n.key(0, group), stride, n.tokens, n.width}, first);

  const TokenSpan keys{first, min(first + Sizes::kKeys, n.tokens)};
  const QueryBounds bounds = queries_of(n, keys, group * share + share - 1);
  QueryWalk at{bounds.first, group * share};
  if (!at.done(bounds)) copy_queries(s.queries[0], n, x, at, bounds.end);
  ptx::cp_async_commit();

  load_last_queries(s.last, n, keys);
  if (threadIdx.x == 0) s.bounds = bounds, s.group = group, s.first = first;
  __syncthreads();
  const int lane_row = row + lane_id() / 4, warp_last = first + row + 16 * kM - 1, warp_end = s.last[row];
  const float scale = n.score_scale<S>() * kLog2e;
  float dk[kM][P == Part::values ? 1 : kColumns][4] = {}, dv[kM][P == Part::keys ? 1 : kColumns][4] = {};
  for (int stage = 0; !at.done(s.bounds); stage = Sizes::kStages - 1 - stage) {
    const QueryWalk next = at.next(s.bounds, kQueries);
    if constexpr (Sizes::kStages == 2) {
      if (!next.done(s.bounds)) copy_queries(s.queries[1 - stage], n, x, next, s.bounds.end);
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<Sizes::kStages - 1>();
    __syncthreads();
    const Queries<T, Width>& tile = s.queries[stage];
    float p[kM][kQueries / 8][4] = {};
    std::uint32_t fragments[kM][kQueries / 16][4];
    multiply_rows(p, s.k, row, tile.q);
    if constexpr (S == Scores::capped) cap_scores<T>(p, n.tanh_scale);
    if (at.query < warp_last || at.query + kQueries - 1 > warp_end)
      mask_queries(p, s.last + lane_row, first + lane_row, at.query);
    weigh_columns(p, tile.lse, scale);
    if constexpr (P != Part::keys) {
      fragments_of<T>(fragments, p);
      multiply(dv, fragments, tile.dy);
    }
    if constexpr (P != Part::values) {
#pragma unroll
      for (int i = 0; i < kM; ++i) {  // one after another, to save registers
        float dp[1][kQueries / 8][4] = {};
        multiply_rows(dp, s.v, row + 16 * i, tile.dy);
        differentiate_columns(dp[0], p[i], tile.delta);
        if constexpr (S == Scores::capped) differentiate_cap_columns(dp[0], p[i], tile.lse, n.softcap);
        fragments_of<T, kQueries / 8>(fragments[i], dp[0]);
      }
      multiply(dk, fragments, tile.q);
    }
    __syncthreads();
    if constexpr (Sizes::kStages == 1) {
      if (!next.done(s.bounds)) copy_queries(s.queries[0], n, x, next, s.bounds.end);
      ptx::cp_async_commit();
    }
    at = next;
  }
  ptx::cp_async_wait<0>();
  for_rows<kM>([&](int i, int h) {
    const int t = s.first + warp_id() * 16 * kM + lane_id() / 4 + 16 * i + 8 * h;
    if (t >= n.tokens) return;
    if constexpr (P != Part::values)
      if (x.dk.data) put_row(x.dk, n.key(t, s.group), dk[i], h, n.scale, n.width);
    if constexpr (P != Part::keys)
      if (x.dv.data) put_row(x.dv, n.key(t, s.group), dv[i], h, 1, n.width);
  });
}

template <class T, int Width, Part P, Scores S>
void run_part(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x) {
  const int tiles = ceil_div(batch.tokens, Shape<Width>::kKeys);
  launch(ctx, "attention_dkdv", attention_dkdv_tile<T, Width, P, S>,
         {static_cast<unsigned>(tiles * x.pass_groups), kAttentionThreads, sizeof(Shared<T, Width>)}, batch, x);
}

}  // namespace

template <class T>
void attention_dkdv_mma(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x) {
  dispatch_tiles(batch, [&]<int Width, Scores S>() {
    if constexpr (Width <= 128) {
      run_part<T, Width, Part::both, S>(ctx, batch, x);
    } else {
      if (x.dk.data) run_part<T, Width, Part::keys, S>(ctx, batch, x);
      if (x.dv.data) run_part<T, Width, Part::values, S>(ctx, batch, x);
    }
  });
}
template void attention_dkdv_mma(Ctx&, const AttentionBatch&, const GradientTensors<Bf16>&);
template void attention_dkdv_mma(Ctx&, const AttentionBatch&, const GradientTensors<F16>&);

}  // namespace qtrain::ops
