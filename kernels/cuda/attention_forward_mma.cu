#include "kernels/cuda/attention_mma.cuh"

/// y = softmax(scale q k^T) v over the keys that each query sees. Each block processes a tile of queries of one head
/// and loops over tiles of keys, updating maxima and sums per row ("online softmax"): with a tile of scores s,
///   m' = max(m, max s),  p = e^(s - m'),  l' = l e^(m - m') + sum p,  out' = out e^(m - m') + p v;  y = out / l.
/// Values are copied while scores are computed, and the next keys while values are accumulated.
namespace qtrain::ops {
namespace {

/// Fragments of 16 queries per warp, and keys per tile: as many as fit in registers.
template <int Width>
struct Shape {
  static constexpr int kFragments = Width <= 128 ? 2 : 1, kKeys = Width == 96 || Width == 128 ? 32 : 64;
  static constexpr int kQueries = 16 * kFragments * kAttentionWarps;
};

template <class T, int Width>
struct Shared {
  Tile<T, Shape<Width>::kQueries, Width> q;
  Tile<T, Shape<Width>::kKeys, Width> k, v;
  int begin[Shape<Width>::kQueries];  ///< first key per query
  int first, head;                    ///< the block's position, kept in shared memory to save registers
};

/// The softmax state of a lane's rows. `sum` is the lane's partial sum until the end.
template <int M, int Keys, int Width>
struct Softmax {
  int row;  ///< the lane's first token
  float max[M][2], sum[M][2];
  float out[M][Width / 8][4];

  __device__ __forceinline__ int token(int i, int h) const { return row + 16 * i + 8 * h; }

  __device__ __forceinline__ void mask(float (&s)[M][Keys / 8][4], int key, const int* begin) const {
    for_rows<M>([&](int i, int h) {
      const int last = token(i, h), first = begin[16 * i + 8 * h];
#pragma unroll
      for (int j = 0; j < Keys / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = key + 8 * j + lane_id() % 4 * 2 + e;
          if (column > last || column < first) s[i][j][2 * h + e] = -INFINITY;
        }
    });
  }

  /// Converts scores to weights; `scale` includes log2 e. Weights are relative to the maximum score so far, or to a
  /// value below it by at most 2^kSlack, so that accumulated values rarely need rescaling.
  __device__ __forceinline__ void weigh(float (&s)[M][Keys / 8][4], float scale) {
    constexpr float kSlack = 8;
    float fade[M][2];
    bool fades = false;
    for_rows<M>([&](int i, int h) {
      float larger = max[i][h];
#pragma unroll
      for (int j = 0; j < Keys / 8; ++j) larger = fmaxf(larger, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
      larger = row_reduce(larger, [](float a, float b) { return fmaxf(a, b); });
      const bool moves = (larger - max[i][h]) * scale > kSlack;  // false if the row has not seen a key yet
      fade[i][h] = moves ? ptx::exp2((max[i][h] - larger) * scale) : 1;
      if (moves) max[i][h] = larger;
      fades = fades || moves;
    });
    if (__any_sync(kAllLanes, fades)) scale_down(fade);
    for_rows<M>([&](int i, int h) {
      const float offset = max[i][h] == -INFINITY ? 0 : max[i][h] * scale;
#pragma unroll
      for (int j = 0; j < Keys / 8; ++j)
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          s[i][j][e] = ptx::exp2(s[i][j][e] * scale - offset);
          sum[i][h] += s[i][j][e];
        }
    });
  }

  __device__ __forceinline__ void scale_down(const float (&fade)[M][2]) {
    for_rows<M>([&](int i, int h) {
      sum[i][h] *= fade[i][h];
#pragma unroll
      for (int j = 0; j < Width / 8; ++j) {
        out[i][j][2 * h] *= fade[i][h];
        out[i][j][2 * h + 1] *= fade[i][h];
      }
    });
  }
};

template <class T, int Width, Scores S>
__global__ void __launch_bounds__(kAttentionThreads) attention_tile(AttentionBatch n, AttentionTensors<T> x) {
  using Sizes = Shape<Width>;
  constexpr int kM = Sizes::kFragments, kKeys = Sizes::kKeys;
  auto& s = shared_memory<Shared<T, Width>>();
  // The last tiles see the most keys, so they start first.
  const int head = static_cast<int>(blockIdx.x) % n.heads, group = n.group_of(head);
  const int first = n.queries.begin + (static_cast<int>(gridDim.x - 1 - blockIdx.x) / n.heads) * Sizes::kQueries;
  const int row = warp_id() * 16 * kM, end = min(first + Sizes::kQueries, n.queries.end);
  const HeadRows<T> q{x.q + n.query(0, head), std::int64_t{n.heads} * n.width, n.queries.end, n.width};
  const HeadRows<T> k{x.k + n.key(0, group), std::int64_t{n.groups} * n.width, end, n.width};
  HeadRows<T> v = k;
  v.data = x.v + n.key(0, group);
  const TokenSpan segment = n.segment(first);
  int key = n.first_key(first, segment);
  copy_rows(s.q, q, first);
  copy_rows(s.k, k, key);
  ptx::cp_async_commit();

  Softmax<kM, kKeys, Width> state{};
  state.row = first + row + lane_id() / 4;
  for_rows<kM>([&](int i, int h) { state.max[i][h] = -INFINITY; });
  if (static_cast<int>(threadIdx.x) < Sizes::kQueries) {
    const int t = first + static_cast<int>(threadIdx.x);
    s.begin[threadIdx.x] = t < n.queries.end ? n.first_key(t, t < segment.end ? segment : n.segment(t)) : t + 1;
  }
  if (threadIdx.x == 0) s.first = first, s.head = head;
  __syncthreads();
  const int* begin = s.begin + row + lane_id() / 4;
  const int warp_first = first + row, warp_begin = s.begin[row + 16 * kM - 1];
  const float scale = n.score_scale<S>() * kLog2e;

  for (; key < end; key += kKeys) {
    ptx::cp_async_wait<0>();
    __syncthreads();
    copy_rows(s.v, v, key);
    ptx::cp_async_commit();
    float scores[kM][kKeys / 8][4] = {};
    multiply_rows(scores, s.q, row, s.k);
    ptx::cp_async_wait<0>();
    __syncthreads();
    if (key + kKeys < end) copy_rows(s.k, k, key + kKeys);
    ptx::cp_async_commit();
    if constexpr (S == Scores::capped) cap_scores<T>(scores, n.tanh_scale);
    if (key + kKeys - 1 > warp_first || key < warp_begin) state.mask(scores, key, begin);
    state.weigh(scores, scale);
    std::uint32_t p[kM][kKeys / 16][4];
    fragments_of<T>(p, scores);
    multiply(state.out, p, s.v);
  }
  ptx::cp_async_wait<0>();

  for_rows<kM>([&](int i, int h) {
    const int t = s.first + warp_id() * 16 * kM + lane_id() / 4 + 16 * i + 8 * h;
    const float sum = row_reduce(state.sum[i][h], Plus{});
    if (t >= n.queries.end) return;
    const bool sees = sum != 0;  // the first visible key had weight 1
    RowEnd end{state.max[i][h] * n.score_scale<S>(), sum};
    if (x.sinks && sees) end.add_sink(x.sinks[s.head]);
    put_row(Target<T>{x.y}, n.query(t, s.head), state.out[i], h, sees ? end.factor / end.sum : 0, n.width);
    if (lane_id() % 4 == 0) x.lse[n.row(s.head, t)] = sees ? end.lse() : 0;
  });
}

}  // namespace

void attention_mma(Ctx& ctx, const Attention& a) {
  const AttentionBatch batch = batch_of(a);
  const auto run = [&]<class T>() {
    dispatch_tiles(batch, [&]<int Width, Scores S>() {
      const int tiles = ceil_div(batch.rows(), Shape<Width>::kQueries);
      launch(ctx, "attention", attention_tile<T, Width, S>,
             {static_cast<unsigned>(tiles * batch.heads), kAttentionThreads, sizeof(Shared<T, Width>)}, batch,
             tensors_of<T>(a));
    });
  };
  if (a.q.dtype == DType::bf16)
    run.operator()<Bf16>();
  else
    run.operator()<F16>();
}

}  // namespace qtrain::ops
