#include "kernels/cuda/attention_gradient.cuh"

/// dq_i = scale sum_j ds_ij k_j with ds = p (dp - delta), p_ij = e^(score_ij - lse_i), dp_ij = dy_i . v_j and delta_i =
/// dy_i . y_i; for capped scores, ds is multiplied by the derivative of tanh. Each block processes a tile of queries of
/// one head and loops over tiles of keys.
namespace qtrain::ops {
namespace {

/// Fragments of 16 queries per warp, keys per tile, and number of key tiles that fit in shared memory.
template <int Width>
struct Shape {
  static constexpr int kFragments = Width <= 128 ? 2 : 1, kKeys = Width <= 64 ? 64 : 32;
  static constexpr int kStages = Width <= 128 ? 2 : 1;
  static constexpr int kQueries = 16 * kFragments * kAttentionWarps;
};

template <class T, int Width>
struct Shared {
  Tile<T, Shape<Width>::kQueries, Width> q, dy;
  Tile<T, Shape<Width>::kKeys, Width> k[Shape<Width>::kStages], v[Shape<Width>::kStages];
  QueryRows<Shape<Width>::kQueries> rows;
  int first, head;  ///< the block's position, kept in shared memory to save registers
};

template <class T, int Width, Scores S>
__global__ void __launch_bounds__(kAttentionThreads) attention_dq_tile(AttentionBatch n, GradientTensors<T> x) {
  using Sizes = Shape<Width>;
  constexpr int kM = Sizes::kFragments, kKeys = Sizes::kKeys;
  auto& s = shared_memory<Shared<T, Width>>();
  // The last tiles see the most keys, so they start first.
  const int share = n.heads / n.groups, heads = x.pass_groups * share;
  const int head = x.first_group * share + static_cast<int>(blockIdx.x) % heads, group = n.group_of(head);
  const int first = n.queries.begin + (static_cast<int>(gridDim.x - 1 - blockIdx.x) / heads) * Sizes::kQueries;
  const int row = warp_id() * 16 * kM, end = min(first + Sizes::kQueries, n.queries.end);
  const std::int64_t q_stride = std::int64_t{n.heads} * n.width, k_stride = std::int64_t{n.groups} * n.width;
  const HeadRows<T> k{x.k + n.key(0, group), k_stride, end, n.width}, v{x.v + n.key(0, group), k_stride, end, n.width};
  const TokenSpan segment = n.segment(first);
  int key = n.first_key(first, segment);
  copy_rows(s.q, {x.q + n.query(0, head), q_stride, n.queries.end, n.width}, first);
  copy_rows(s.dy, {x.dy + n.query(0, head), q_stride, n.queries.end, n.width}, first);
  copy_rows(s.k[0], k, key);
  copy_rows(s.v[0], v, key);
  ptx::cp_async_commit();

  load_rows(s.rows, n, x, head, first, segment);
  if (threadIdx.x == 0) s.first = first, s.head = head;
  __syncthreads();
  const int lane_row = row + lane_id() / 4, warp_first = first + row, warp_begin = s.rows.begin[row + 16 * kM - 1];
  const float scale = n.score_scale<S>() * kLog2e;
  float out[kM][Width / 8][4] = {};
  for (int stage = 0; key < end; key += kKeys, stage = Sizes::kStages - 1 - stage) {
    const int next = Sizes::kStages - 1 - stage;
    if constexpr (Sizes::kStages == 2) {
      if (key + kKeys < end) {
        copy_rows(s.k[next], k, key + kKeys);
        copy_rows(s.v[next], v, key + kKeys);
      }
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<Sizes::kStages - 1>();
    __syncthreads();
    float scores[kM][kKeys / 8][4] = {}, dp[kM][kKeys / 8][4] = {};
    multiply_rows(scores, s.q, row, s.k[stage]);
    multiply_rows(dp, s.dy, row, s.v[stage]);
    if constexpr (S == Scores::capped) cap_scores<T>(scores, n.tanh_scale);
    if (key + kKeys - 1 > warp_first || key < warp_begin)
      mask_keys(scores, s.rows.begin + lane_row, first + lane_row, key);
    differentiate(dp, scores, s.rows.lse + lane_row, s.rows.delta + lane_row, scale);
    if constexpr (S == Scores::capped) differentiate_cap(dp, scores);
    std::uint32_t ds[kM][kKeys / 16][4];
    fragments_of<T>(ds, dp);
    multiply(out, ds, s.k[stage]);
    __syncthreads();
    if constexpr (Sizes::kStages == 1) {
      if (key + kKeys < end) {
        copy_rows(s.k[0], k, key + kKeys);
        copy_rows(s.v[0], v, key + kKeys);
      }
      ptx::cp_async_commit();
    }
  }
  ptx::cp_async_wait<0>();
  for_rows<kM>([&](int i, int h) {
    const int t = s.first + warp_id() * 16 * kM + lane_id() / 4 + 16 * i + 8 * h;
    if (t < n.queries.end) put_row(x.dq, n.query(t, s.head), out[i], h, n.scale, n.width);
  });
}

}  // namespace

template <class T>
void attention_dq_mma(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x) {
  dispatch_tiles(batch, [&]<int Width, Scores S>() {
    const int tiles = ceil_div(batch.rows(), Shape<Width>::kQueries);
    const auto blocks = static_cast<unsigned>(tiles * x.pass_groups * (batch.heads / batch.groups));
    launch(ctx, "attention_dq", attention_dq_tile<T, Width, S>, {blocks, kAttentionThreads, sizeof(Shared<T, Width>)},
           batch, x);
  });
}
template void attention_dq_mma(Ctx&, const AttentionBatch&, const GradientTensors<Bf16>&);
template void attention_dq_mma(Ctx&, const AttentionBatch&, const GradientTensors<F16>&);

}  // namespace qtrain::ops
