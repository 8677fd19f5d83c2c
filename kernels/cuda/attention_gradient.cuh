#pragma once
#include "kernels/cuda/attention_mma.cuh"

/// What the gradient kernels on tensor cores compute between GEMMs: p = e^(score - lse) from scores, and ds = p (dp -
/// delta) from p and dp = dy . v. Rows are queries for dq, and keys for dk and dv. In functions named `_columns`, lse
/// and delta belong to the columns.
namespace qtrain::ops {

/// The queries that a block of keys needs: tokens [first, end) of heads up to last_head.
struct QueryBounds {
  int first, end, last_head;
};
/// Iterates over them in tiles.
struct QueryWalk {
  int query, head;

  __device__ __forceinline__ bool done(const QueryBounds& b) const { return head > b.last_head || b.first >= b.end; }
  __device__ __forceinline__ QueryWalk next(const QueryBounds& b, int step) const {
    return query + step < b.end ? QueryWalk{query + step, head} : QueryWalk{b.first, head + 1};
  }
};

/// The queries that a block needs for its keys.
__device__ __forceinline__ QueryBounds queries_of(const AttentionBatch& n, TokenSpan keys, int last_head) {
  // Padding queries see no key, so the last key inside a segment is seen by the last queries.
  const int last_key = min(min(keys.end, n.tokens), n.cu[n.segments]) - 1;
  const int end = last_key < keys.begin ? keys.begin : min(n.last_query(last_key) + 1, n.queries.end);
  return {max(keys.begin, n.queries.begin), end, last_head};
}
/// The last query that sees key t, or t - 1 from `end` on; `segment` is that of an earlier token.
__device__ __forceinline__ int last_query_of(const AttentionBatch& n, int t, int end, TokenSpan segment) {
  return t < end ? n.last_query(t, t < segment.end ? segment : n.segment(t)) : t - 1;
}
/// Stores the last query that sees each of the Keys keys from keys.begin on.
template <int Keys>
__device__ __forceinline__ void load_last_queries(int (&last)[Keys], const AttentionBatch& n, TokenSpan keys) {
  const TokenSpan segment = n.segment(keys.begin);
  const int i = static_cast<int>(threadIdx.x);
  if (i < Keys) last[i] = last_query_of(n, keys.begin + i, keys.end, segment);
}
/// Starts copying lse and delta of a tile of queries.
template <int Queries, class T>
__device__ __forceinline__ void copy_sums(float (&lse)[Queries], float (&delta)[Queries], const AttentionBatch& n,
                                          const GradientTensors<T>& x, const QueryWalk& at, int end) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= Queries) return;
  const bool there = at.query + i < end;
  const std::int64_t token = n.row(at.head, at.query + i);
  const std::int64_t pass = std::int64_t{x.first_group} * (n.heads / n.groups) * n.rows();
  ptx::cp_async<4>(&lse[i], there ? x.lse + token : x.lse, there ? 4 : 0);
  ptx::cp_async<4>(&delta[i], there ? x.delta + token - pass : x.delta, there ? 4 : 0);
}

/// Masks the queries that do not see a key. `last` (queries) and `token` belong to the lane's first row.
template <int M, int N>
__device__ __forceinline__ void mask_queries(float (&s)[M][N][4], const int* last, int token, int query) {
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
__device__ __forceinline__ void weigh_columns(float (&s)[M][N][4], const float* lse, float scale) {
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
__device__ __forceinline__ void differentiate_columns(float (&dp)[N][4], const float (&p)[N][4], const float* delta) {
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
__device__ __forceinline__ void differentiate_cap_columns(float (&ds)[N][4], const float (&p)[N][4], const float* lse,
                                                          float softcap) {
  const float factor = 1.0f / softcap;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const Pack<float, 2> of = load_pack<2>(lse + 8 * j + lane_id() % 4 * 2);
#pragma unroll
    for (int e = 0; e < 4; ++e) ds[j][e] *= tanh_slope((__logf(p[j][e]) + of.v[e % 2]) * factor);
  }
}

/// For each query of a tile: its first key, lse in base 2, and delta.
template <int Queries>
struct QueryRows {
  int begin[Queries];
  float lse[Queries], delta[Queries];
};
/// Loads the per-row values of a tile. Rows past the last token see nothing.
template <int Queries, class T>
__device__ __forceinline__ void load_rows(QueryRows<Queries>& rows, const AttentionBatch& n,
                                          const GradientTensors<T>& x, int head, int first, TokenSpan segment) {
  const int i = static_cast<int>(threadIdx.x), t = first + i;
  if (i >= Queries) return;
  const bool there = t < n.queries.end;
  const std::int64_t of_head = n.row(head, t), of_pass = n.row(head - x.first_group * (n.heads / n.groups), t);
  rows.begin[i] = there ? n.first_key(t, t < segment.end ? segment : n.segment(t)) : t + 1;
  rows.lse[i] = there ? x.lse[of_head] * kLog2e : 0;
  rows.delta[i] = there ? x.delta[of_pass] : 0;
}

/// Converts dp to ds.
template <int M, int N>
__device__ __forceinline__ void differentiate(float (&dp)[M][N][4], const float (&s)[M][N][4], const float* lse,
                                              const float* delta, float scale) {
  for_rows<M>([&](int i, int h) {
    const float of_lse = lse[16 * i + 8 * h], of_delta = delta[16 * i + 8 * h];
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 2 * h; e < 2 * h + 2; ++e)
        dp[i][j][e] = ptx::exp2(s[i][j][e] * scale - of_lse) * (dp[i][j][e] - of_delta);
  });
}

/// ds of capped scores, from ds with respect to the tanh in `s`.
template <int M, int N>
__device__ __forceinline__ void differentiate_cap(float (&ds)[M][N][4], const float (&s)[M][N][4]) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[i][j][e] *= tanh_slope(s[i][j][e]);
}

}  // namespace qtrain::ops
