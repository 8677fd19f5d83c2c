#include "kernels/cuda/attention_turns.cuh"

/// dq, dk and dv in one kernel of five products; attention_dq_mma.cu and attention_dkdv_mma.cu take seven. Each block
/// processes a tile of keys and loops over the tiles of queries that see it, of all heads that share the key head. dk
/// and dv stay in registers.
namespace qtrain::ops {
namespace {

inline constexpr int kWarps = 8, kThreads = kWarps * kWarp, kKeys = 16 * kWarps, kQueries = kSumQueries;
static_assert(kKeys == kItemKeys);

/// Queries whose scores are computed at a time, and whether keys and ds stay in registers, as these allow; and how
/// warps divide a tile of dq.
template <int Width>
struct Shape {
  static constexpr int kStep = Width <= 64 ? 64 : 32;
  static constexpr bool kStay = kStep == kQueries;
  static constexpr int kWarpsDown = Width == 96 ? 4 : 2, kWarpsAcross = kWarps / kWarpsDown;
  static constexpr int kM = kQueries / 16 / kWarpsDown, kN = Width / 8 / kWarpsAcross;
};

template <class T, int Width>
struct Shared {
  Tile<T, kKeys, Width> k;
  union {
    Tile<T, kQueries, Width> q[2];
    Tile<T, kKeys, Width> v;  ///< until it is in registers
  };
  Tile<T, kQueries, Width> dy;
  Tile<T, kKeys, kQueries> ds;  ///< a row for each key
  alignas(8) float lse[2][kQueries];
  alignas(8) float delta[2][kQueries];
  int last[kKeys];  ///< last query that sees each key
  KeyItem item;
  QueryTileAt at[2];      ///< this step and the next one, kept in shared memory to save registers
  int sum;                ///< number of this step's tile of dq, or -1 before the first step
  int sum_row;            ///< where its sums begin, in rows
  int is_first, is_last;  ///< whether no block adds to it before this one, or after it
};

template <class T, int Width>
struct Walk : Turns<T> {
  using Base = Turns<T>;
  using Base::n, Base::x, Base::item, Base::query;
  Shared<T, Width>& s;

  __device__ __forceinline__ Walk(const AttentionBatch& batch, const SummedGradients<T>& gradients,
                                  Shared<T, Width>& shared)
      : Base{batch, gradients, shared.item}, s(shared) {}
  __device__ __forceinline__ void copy_q(const QueryTileAt& at, int stage) const {
    const std::int64_t stride = std::int64_t{n.heads} * n.width;
    copy_rows<kThreads>(s.q[stage], {x.q + n.query(0, at.head), stride, item.query_end, n.width}, query(at));
    copy_sums(s.lse[stage], s.delta[stage], n, x, {query(at), at.head}, item.query_end);
  }
  __device__ __forceinline__ void copy_dy(const QueryTileAt& at) const {
    const std::int64_t stride = std::int64_t{n.heads} * n.width;
    copy_rows<kThreads>(s.dy, {x.dy + n.query(0, at.head), stride, item.query_end, n.width}, query(at));
  }
};

/// c += A B^T with A in fragments, over 8 N rows of B from `row` on.
template <class T, int N, int K, int Rows, int Width>
__device__ __forceinline__ void multiply_fragments(float (&c)[N][4], const std::uint32_t (&a)[K][4],
                                                   const Tile<T, Rows, Width>& b, int row) {
  const T* shared = &shared_memory<T>();
  int at_b = static_cast<int>(b.v - shared) + b.offset(lane_id() / 16 * 8 + lane_id() % 8, lane_id() / 8 % 2);
  ptx::opaque(at_b);
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      std::uint32_t fb[4];
      ptx::ldmatrix(fb, shared + b.moved(at_b, 2 * k) + (row + 8 * j) * Width);
      mma_pair<T>(c[j], c[j + 1], a[k], fb);
    }
}

/// Loads 16 rows as left operands.
template <class T, int K, int Rows, int Width>
__device__ __forceinline__ void load_fragments(std::uint32_t (&to)[K][4], const Tile<T, Rows, Width>& from, int row) {
#pragma unroll
  for (int k = 0; k < K; ++k) ptx::ldmatrix(to[k], from.v + from.offset(row + lane_id() % 16, 2 * k + lane_id() / 16));
}

/// c += A^T B over rows [16 first, 16 end): columns `column`, ... of A and `chunk`, ... (in chunks) of B.
template <class T, int M, int N, int Rows, int WidthA, int Width>
__device__ __forceinline__ void multiply_columns(float (&c)[M][N][4], const Tile<T, Rows, WidthA>& a, int column,
                                                 const Tile<T, Rows, Width>& b, int chunk, TokenSpan sixteens) {
  const T* shared = &shared_memory<T>();
  const int lane = lane_id(), base_a = static_cast<int>(a.v - shared) + sixteens.begin * 16 * WidthA,
            base_b = static_cast<int>(b.v - shared) + sixteens.begin * 16 * Width;
  int at_a[M], at_b[N / 2];
#pragma unroll
  for (int i = 0; i < M; ++i)
    at_a[i] = base_a + a.offset(lane % 8 + lane / 16 * 8, column / kChunk + 2 * i + lane / 8 % 2);
#pragma unroll
  for (int j = 0; j < N / 2; ++j) at_b[j] = base_b + b.offset(lane % 16, chunk + 2 * j + lane / 16);
  for (int k = sixteens.begin; k < sixteens.end; ++k) {
    std::uint32_t fa[M][4];
#pragma unroll
    for (int i = 0; i < M; ++i) {
      ptx::ldmatrix_transposed(fa[i], shared + at_a[i]);
      at_a[i] += 16 * WidthA;
    }
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      std::uint32_t fb[4];
      ptx::ldmatrix_transposed(fb, shared + at_b[j / 2]);
      at_b[j / 2] += 16 * Width;
#pragma unroll
      for (int i = 0; i < M; ++i) mma_pair<T>(c[i][j], c[i][j + 1], fa[i], fb);
    }
  }
}

/// Stores ds of the calling warp's 16 keys, starting with query `query` of the tile.
template <class T, int K, int Rows, int Width>
__device__ __forceinline__ void put_fragments(Tile<T, Rows, Width>& to, const std::uint32_t (&ds)[K][4], int row,
                                              int query) {
  const int r = row + lane_id() / 4;
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = to.offset(r + i % 2 * 8, query / kChunk + 2 * k + i / 2) + lane_id() % 4 * 2;
      *reinterpret_cast<std::uint32_t*>(to.v + at) = ds[k][i];
    }
}

template <class T, int Width>
__global__ void __launch_bounds__(kThreads) attention_grad_tile(AttentionBatch n, SummedGradients<T> x) {
  using Sizes = Shape<Width>;
  constexpr int kStep = Sizes::kStep, kM = Sizes::kM, kN = Sizes::kN;
  auto& s = shared_memory<Shared<T, Width>>();
  const Walk<T, Width> walk(n, x, s);
  if (threadIdx.x == 0) {
    walk.take();
    s.at[0] = walk.first();
    s.sum = -1;
  }
  __syncthreads();
  if (s.item.first >= s.item.key_end) return;
  const int row = warp_id() * 16, lane_row = row + lane_id() / 4;
  const std::int64_t stride = std::int64_t{n.groups} * n.width;
  copy_rows<kThreads>(s.k, {x.k + n.key(0, s.item.group), stride, s.item.key_end, n.width}, s.item.first);
  copy_rows<kThreads>(s.v, {x.v + n.key(0, s.item.group), stride, s.item.key_end, n.width}, s.item.first);
  ptx::cp_async_commit();
  load_last_queries(s.last, n, {s.item.first, s.item.key_end});
  ptx::cp_async_wait<0>();
  __syncthreads();
  std::uint32_t k[Sizes::kStay ? Width / 16 : 1][4], v[Width / 16][4], fragments[1][kStep / 16][4];
  if constexpr (Sizes::kStay) load_fragments(k, s.k, row);
  load_fragments(v, s.v, row);
  __syncthreads();

  if (!walk.done(s.at[0])) {
    walk.copy_q(s.at[0], 0);
    walk.copy_dy(s.at[0]);
  }
  ptx::cp_async_commit();
  float dk[1][Width / 8][4] = {}, dv[1][Width / 8][4] = {};
  for (int stage = 0; !walk.done(s.at[stage]); stage ^= 1) {
    ptx::cp_async_wait<0>();
    __syncthreads();
    if (threadIdx.x == 0 && s.sum >= 0 && !s.is_last) walk.pass_on(s.sum);
    if (const QueryTileAt next = walk.next(s.at[stage]); !walk.done(next)) walk.copy_q(next, stage ^ 1);
    const int query = walk.query(s.at[stage]), first = s.item.first;
    // The sixteens of keys, one for each warp, that some of the queries see.
    const auto last_query = static_cast<unsigned>(min(query + kQueries, s.item.query_end) - 1 - first);
    TokenSpan seen{0, static_cast<int>(min(static_cast<unsigned>(kWarps), last_query / 16 + 1))};
    while (s.last[16 * seen.begin + 15] < query) ++seen.begin;
    const bool sees = seen.begin <= warp_id() && warp_id() < seen.end;
    if (sees)
#pragma unroll 1  // to save registers
      for (int part = 0; part < kQueries; part += kStep) {
        float p[1][kStep / 8][4] = {}, dp[kStep / 8][4] = {};
        if constexpr (Sizes::kStay)
          multiply_fragments(p[0], k, s.q[stage], part);
        else
          multiply_rows(p, s.k, row, s.q[stage], part);
        if (query + part < first + row + 15 || query + part + kStep - 1 > s.last[row])
          mask_queries(p, s.last + lane_row, first + lane_row, query + part);
        weigh_columns(p, s.lse[stage] + part, n.scale * kLog2e);
        fragments_of<T>(fragments, p);
        multiply(dv, fragments, s.dy, part);
        multiply_fragments(dp, v, s.dy, part);
        differentiate_columns(dp, p[0], s.delta[stage] + part);
        fragments_of<T, kStep / 8>(fragments[0], dp);
        put_fragments(s.ds, fragments[0], row, part);
      }
    if (threadIdx.x == 0) {
      s.at[stage ^ 1] = walk.next(s.at[stage]);
      walk.wait(s.at[stage]);
      s.sum = walk.sum_of(s.at[stage]);
      s.sum_row = walk.sum_row(s.at[stage]);
      s.is_first = walk.is_first(s.at[stage]);
      s.is_last = walk.is_last(s.at[stage]);
    }
    __syncthreads();
    if (!walk.done(s.at[stage ^ 1])) walk.copy_dy(s.at[stage ^ 1]);
    ptx::cp_async_commit();
    const int down = warp_id() % Sizes::kWarpsDown * 16 * kM, across = warp_id() / Sizes::kWarpsDown * 8 * kN;
    float* sums = x.sums.data + std::int64_t{s.sum_row} * Width + (warp_id() * kM * kN * kWarp + lane_id()) * 4;
    float dq[kM][kN][4] = {};
    if (!s.is_first)
#pragma unroll
      for (int i = 0; i < kM * kN; ++i) {
        const Pack<float, 4> values = load_pack<4>(sums + i * kWarp * 4);
#pragma unroll
        for (int e = 0; e < 4; ++e) dq[i / kN][i % kN][e] = values.v[e];
      }
    if constexpr (Sizes::kStay) {
      if (sees) multiply(dk, fragments, s.q[stage]);
    } else if (sees) {
#pragma unroll 1
      for (int part = 0; part < kQueries; part += 16) {
        std::uint32_t ds[1][1][4];
        ptx::ldmatrix(ds[0][0], s.ds.v + s.ds.offset(row + lane_id() % 16, part / kChunk + lane_id() / 16));
        multiply(dk, ds, s.q[stage], part);
      }
    }
    multiply_columns(dq, s.ds, down, s.k, across / kChunk, seen);
    if (!s.is_last) {
      Pack<float, 4> values;
#pragma unroll
      for (int i = 0; i < kM * kN; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) values.v[e] = dq[i / kN][i % kN][e];
        store_pack<4>(sums + i * kWarp * 4, values);
      }
    } else {
      const QueryTileAt at = s.at[stage];
      for_rows<kM>([&](int i, int h) {
        const int t = walk.query(at) + down + lane_id() / 4 + 16 * i + 8 * h;
        if (t < s.item.query_end) put_row(x.dq, n.query(t, at.head) + across, dq[i], h, n.scale, n.width - across);
      });
    }
  }
  ptx::cp_async_wait<0>();
  __syncthreads();
  if (threadIdx.x == 0 && s.sum >= 0 && !s.is_last) walk.pass_on(s.sum);
  for_rows<1>([&](int i, int h) {
    const int t = s.item.first + lane_row + 8 * h;
    if (t >= s.item.key_end) return;
    put_row(x.dk, n.key(t, s.item.group), dk[i], h, n.scale, n.width);
    put_row(x.dv, n.key(t, s.item.group), dv[i], h, 1, n.width);
  });
}

}  // namespace

template <class T>
void attention_grad_mma(Ctx& ctx, const AttentionBatch& batch, const SummedGradients<T>& x) {
  const auto blocks = static_cast<unsigned>(x.sums.key_tiles * x.pass_groups);
  const auto run = [&]<int Width>() {
    launch(ctx, "attention_grad", attention_grad_tile<T, Width>, {blocks, kThreads, sizeof(Shared<T, Width>)}, batch,
           x);
  };
  if (batch.width <= 64)
    run.template operator()<64>();
  else if (batch.width <= 96)
    run.template operator()<96>();
  else
    run.template operator()<128>();
}
template void attention_grad_mma(Ctx&, const AttentionBatch&, const SummedGradients<Bf16>&);
template void attention_grad_mma(Ctx&, const AttentionBatch&, const SummedGradients<F16>&);

}  // namespace qtrain::ops
