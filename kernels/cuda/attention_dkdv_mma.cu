#include "kernels/cuda/attention_mma.cuh"

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

/// The queries of a block: tokens [first, end) of heads up to last_head.
struct Bounds {
  int first, end, last_head;
};
/// Iterates over them in tiles.
struct Walk {
  int query, head;

  __device__ __forceinline__ bool done(const Bounds& b) const { return head > b.last_head || b.first >= b.end; }
  __device__ __forceinline__ Walk next(const Bounds& b, int step) const {
    return query + step < b.end ? Walk{query + step, head} : Walk{b.first, head + 1};
  }
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
  Bounds bounds;                  ///< kept in shared memory during the loop, to save registers
  int last[Shape<Width>::kKeys];  ///< last query that sees each key
  int group, first;               ///< the block's position
};

template <class T, int Width>
__device__ __forceinline__ void copy_queries(Queries<T, Width>& to, const AttentionBatch& n,
                                             const GradientTensors<T>& x, const Walk& at, int end) {
  const std::int64_t stride = std::int64_t{n.heads} * n.width;
  copy_rows(to.q, {x.q + n.query(0, at.head), stride, end, n.width}, at.query);
  copy_rows(to.dy, {x.dy + n.query(0, at.head), stride, end, n.width}, at.query);
  const int i = static_cast<int>(threadIdx.x);
  if (i < Shape<Width>::kQueries) {
    const bool there = at.query + i < end;
    const std::int64_t token = n.row(at.head, at.query + i);
    const std::int64_t pass = std::int64_t{x.first_group} * (n.heads / n.groups) * n.rows();
    ptx::cp_async<4>(&to.lse[i], there ? x.lse + token : x.lse, there ? 4 : 0);
    ptx::cp_async<4>(&to.delta[i], there ? x.delta + token - pass : x.delta, there ? 4 : 0);
  }
}

/// Masks the queries that do not see a key. `last` (queries) and `token` belong to the lane's first row.
template <int M, int N>
__device__ __forceinline__ void mask(float (&s)[M][N][4], const int* last, int token, int query) {
  for_rows<M>([&](int i, int h) {
    const int begin = token + 16 * i + 8 * h, end = last[16 * i + 8 * h];
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = query + 8 * j + lane_id() % 4 * 2 + e;
        if (column < begin || column > end) s[i][j][2 * h + e] = -INFINITY;
      }
  });
}

/// Converts scores to p.
template <int M, int N>
__device__ __forceinline__ void weigh(float (&s)[M][N][4], const float* lse, float scale) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const Pack<float, 2> of = load_pack<2>(lse + 8 * j + lane_id() % 4 * 2);
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[i][j][e] = ptx::exp2(s[i][j][e] * scale - of.v[e % 2] * kLog2e);
  }
}
/// Converts dp to ds, for 16 rows.
template <int N>
__device__ __forceinline__ void differentiate(float (&dp)[N][4], const float (&p)[N][4], const float* delta) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const Pack<float, 2> of = load_pack<2>(delta + 8 * j + lane_id() % 4 * 2);
#pragma unroll
    for (int e = 0; e < 4; ++e) dp[j][e] = p[j][e] * (dp[j][e] - of.v[e % 2]);
  }
}

/// ds of capped scores, for 16 rows. tanh is recovered from p = e^(softcap * tanh - lse), since there are no registers
/// left to keep it. Its error is that of the logarithm divided by softcap.
template <int N>
__device__ __forceinline__ void differentiate_cap(float (&ds)[N][4], const float (&p)[N][4], const float* lse,
                                                  float softcap) {
  const float factor = 1.0f / softcap;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const Pack<float, 2> of = load_pack<2>(lse + 8 * j + lane_id() % 4 * 2);
#pragma unroll
    for (int e = 0; e < 4; ++e) ds[j][e] *= tanh_slope((__logf(p[j][e]) + of.v[e % 2]) * factor);
  }
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

  // Padding queries see no key, so the last key inside a segment is seen by the last queries.
  const int last_key = min(min(first + Sizes::kKeys, n.tokens), n.cu[n.segments]) - 1;
  const int begin = max(first, n.queries.begin);
  const int end = last_key < first ? first : min(n.last_query(last_key) + 1, n.queries.end);
  Walk at{begin, group * share};
  if (begin < end) copy_queries(s.queries[0], n, x, at, end);
  ptx::cp_async_commit();

  const TokenSpan segment = n.segment(first);
  if (static_cast<int>(threadIdx.x) < Sizes::kKeys) {
    const int t = first + static_cast<int>(threadIdx.x);
    s.last[threadIdx.x] = t < n.tokens ? n.last_query(t, t < segment.end ? segment : n.segment(t)) : t - 1;
  }
  if (threadIdx.x == 0) s.bounds = Bounds{begin, end, group * share + share - 1}, s.group = group, s.first = first;
  __syncthreads();
  const int lane_row = row + lane_id() / 4, warp_last = first + row + 16 * kM - 1, warp_end = s.last[row];
  const float scale = n.score_scale<S>() * kLog2e;
  float dk[kM][P == Part::values ? 1 : kColumns][4] = {}, dv[kM][P == Part::keys ? 1 : kColumns][4] = {};
  for (int stage = 0; !at.done(s.bounds); stage = Sizes::kStages - 1 - stage) {
    const Walk next = at.next(s.bounds, kQueries);
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
      mask(p, s.last + lane_row, first + lane_row, at.query);
    weigh(p, tile.lse, scale);
    if constexpr (P != Part::keys) {
      fragments_of<T>(fragments, p);
      multiply(dv, fragments, tile.dy);
    }
    if constexpr (P != Part::values) {
#pragma unroll
      for (int i = 0; i < kM; ++i) {  // one after another, to save registers
        float dp[1][kQueries / 8][4] = {};
        multiply_rows(dp, s.v, row + 16 * i, tile.dy);
        differentiate(dp[0], p[i], tile.delta);
        if constexpr (S == Scores::capped) differentiate_cap(dp[0], p[i], tile.lse, n.softcap);
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
