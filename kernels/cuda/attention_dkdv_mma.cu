#include "kernels/cuda/attention_mma.cuh"

/// dv_j = sum_i p_ij dy_i and dk_j = scale sum_i ds_ij q_i (see attention_dq_mma.cu), over the queries i of all heads
/// that share the key head, in a fixed order: a tile of keys in each block, over tiles of queries. Scores are computed
/// transposed, keys in rows, so that p^T and ds^T are left operands as they come out of the registers.
namespace qtrain::ops {
namespace {

/// Which results a launch computes: both don't fit in the registers for the widest heads.
enum class Part : std::uint8_t { both, keys, values };

/// Fragments of 16 keys in each warp; queries of a tile; how many tiles of queries there is room for.
template <int Width>
struct Shape {
  static constexpr int kFragments = Width <= 64 ? 2 : 1, kQueries = Width <= 64 || Width > 128 ? 32 : 64;
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
};

/// Goes through the tiles of queries of a block: tokens [first, end) of heads [head, last_head].
struct Walk {
  int first, end, head, last_head, query;

  __device__ __forceinline__ bool done() const { return head > last_head || first >= end; }
  __device__ __forceinline__ Walk next(int step) const {
    Walk w = *this;
    w.query += step;
    if (w.query >= end) w.query = first, ++w.head;
    return w;
  }
};

template <class T, int Width>
__device__ __forceinline__ void copy_queries(Queries<T, Width>& to, const AttentionBatch& n,
                                             const GradientTensors<T>& x, const Walk& at) {
  const std::int64_t stride = std::int64_t{n.heads} * n.width;
  copy_rows(to.q, {x.q + n.query(0, at.head), stride, at.end, n.width}, at.query);
  copy_rows(to.dy, {x.dy + n.query(0, at.head), stride, at.end, n.width}, at.query);
  const int i = static_cast<int>(threadIdx.x);
  if (i < Shape<Width>::kQueries) {
    const bool there = at.query + i < at.end;
    const std::int64_t token = std::int64_t{at.head} * n.tokens + at.query + i;
    const std::int64_t pass = std::int64_t{x.first_group} * (n.heads / n.groups) * n.tokens;
    ptx::cp_async<4>(&to.lse[i], there ? x.lse + token : x.lse, there ? 4 : 0);
    ptx::cp_async<4>(&to.delta[i], there ? x.delta + token - pass : x.delta, there ? 4 : 0);
  }
}

/// What a lane knows of its rows, which are keys.
template <int M>
struct Rows {
  int row, last[M][2];  ///< the lane's first token; last queries

  __device__ __forceinline__ int token(int i, int h) const { return row + 16 * i + 8 * h; }

  template <int N>
  __device__ __forceinline__ void mask(float (&s)[M][N][4], int query) const {
    for_rows<M>([&](int i, int h) {
#pragma unroll
      for (int j = 0; j < N; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = query + 8 * j + lane_id() % 4 * 2 + e;
          if (column < token(i, h) || column > last[i][h]) s[i][j][2 * h + e] = -INFINITY;
        }
    });
  }
};

/// Turns scores into p.
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
/// Turns dp into ds.
template <int M, int N>
__device__ __forceinline__ void differentiate(float (&dp)[M][N][4], const float (&p)[M][N][4], const float* delta) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const Pack<float, 2> of = load_pack<2>(delta + 8 * j + lane_id() % 4 * 2);
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) dp[i][j][e] = p[i][j][e] * (dp[i][j][e] - of.v[e % 2]);
  }
}

template <class T, int Width, Part P>
__global__ void __launch_bounds__(kAttentionThreads) attention_dkdv_tile(AttentionBatch n, GradientTensors<T> x) {
  using S = Shape<Width>;
  constexpr int kM = S::kFragments, kQueries = S::kQueries, kColumns = Width / 8;
  auto& s = shared_memory<Shared<T, Width>>();
  const int group = x.first_group + static_cast<int>(blockIdx.x) % x.pass_groups, share = n.heads / n.groups;
  const int first = static_cast<int>(blockIdx.x) / x.pass_groups * S::kKeys, row = warp_id() * 16 * kM;
  const std::int64_t stride = std::int64_t{n.groups} * n.width;
  copy_rows(s.k, {x.k + n.key(0, group), stride, n.tokens, n.width}, first);
  if constexpr (P != Part::values) copy_rows(s.v, {x.v + n.key(0, group), stride, n.tokens, n.width}, first);

  // Behind the last segment no query sees a key, so the last key that is in one sees the last queries.
  const int last_key = min(min(first + S::kKeys, n.tokens), n.cu[n.segments]) - 1;
  const int end = last_key < first ? first : n.last_query(last_key) + 1;
  Walk at{.first = first, .end = end, .head = group * share, .last_head = group * share + share - 1, .query = first};
  if (!at.done()) copy_queries(s.queries[0], n, x, at);
  ptx::cp_async_commit();

  const TokenSpan segment = n.segment(first);
  Rows<kM> rows{.row = first + row + lane_id() / 4, .last = {}};
  for_rows<kM>([&](int i, int h) {
    const int t = rows.token(i, h);
    rows.last[i][h] = t < n.tokens ? n.last_query(t, t < segment.end ? segment : n.segment(t)) : t - 1;
  });
  const int warp_last = first + row + 16 * kM - 1, warp_end = __shfl_sync(kAllLanes, rows.last[0][0], 0);
  const float scale = n.scale * kLog2e;
  float dk[kM][P == Part::values ? 1 : kColumns][4] = {}, dv[kM][P == Part::keys ? 1 : kColumns][4] = {};
  for (int stage = 0; !at.done(); stage = S::kStages - 1 - stage) {
    const Walk next = at.next(kQueries);
    if constexpr (S::kStages == 2) {
      if (!next.done()) copy_queries(s.queries[1 - stage], n, x, next);
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<S::kStages - 1>();
    __syncthreads();
    const Queries<T, Width>& tile = s.queries[stage];
    float p[kM][kQueries / 8][4] = {};
    std::uint32_t fragments[kM][kQueries / 16][4];
    multiply_rows(p, s.k, row, tile.q);
    if (at.query < warp_last || at.query + kQueries - 1 > warp_end) rows.mask(p, at.query);
    weigh(p, tile.lse, scale);
    if constexpr (P != Part::keys) {
      fragments_of<T>(fragments, p);
      multiply(dv, fragments, tile.dy);
    }
    if constexpr (P != Part::values) {
      float dp[kM][kQueries / 8][4] = {};
      multiply_rows(dp, s.v, row, tile.dy);
      differentiate(dp, p, tile.delta);
      fragments_of<T>(fragments, dp);
      multiply(dk, fragments, tile.q);
    }
    __syncthreads();
    if constexpr (S::kStages == 1) {
      if (!next.done()) copy_queries(s.queries[0], n, x, next);
      ptx::cp_async_commit();
    }
    at = next;
  }
  ptx::cp_async_wait<0>();
  for_rows<kM>([&](int i, int h) {
    const int t = rows.token(i, h);
    if (t >= n.tokens) return;
    if constexpr (P != Part::values)
      if (x.dk.data) put_row(x.dk, n.key(t, group), dk[i], h, n.scale, n.width);
    if constexpr (P != Part::keys)
      if (x.dv.data) put_row(x.dv, n.key(t, group), dv[i], h, 1, n.width);
  });
}

template <class T, int Width, Part P>
void run_part(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x) {
  const int tiles = ceil_div(batch.tokens, Shape<Width>::kKeys);
  launch(ctx, "attention_dkdv", attention_dkdv_tile<T, Width, P>,
         {static_cast<unsigned>(tiles * x.pass_groups), kAttentionThreads, sizeof(Shared<T, Width>)}, batch, x);
}

}  // namespace

template <class T>
void attention_dkdv_mma(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x) {
  dispatch_width(batch.width, [&]<int Width>() {
    if constexpr (Width <= 128) {
      run_part<T, Width, Part::both>(ctx, batch, x);
    } else {
      if (x.dk.data) run_part<T, Width, Part::keys>(ctx, batch, x);
      if (x.dv.data) run_part<T, Width, Part::values>(ctx, batch, x);
    }
  });
}
template void attention_dkdv_mma(Ctx&, const AttentionBatch&, const GradientTensors<Bf16>&);
template void attention_dkdv_mma(Ctx&, const AttentionBatch&, const GradientTensors<F16>&);

}  // namespace qtrain::ops
