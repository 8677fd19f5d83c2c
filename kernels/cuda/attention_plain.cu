#include "kernels/cuda/attention.cuh"

/// Attention without tensor cores, for f32 and heads of any size: one warp per token and head. Lanes correspond to keys
/// while scores are computed, and to elements of the head while rows are accumulated.
namespace qtrain::ops {
namespace {

constexpr int kWarps = 4, kElements = kMaxHead / kWarp;  ///< elements of a head per lane

/// Rows that a warp reads repeatedly.
struct alignas(16) WarpRows {
  float a[kMaxHead], b[kMaxHead];
};
struct Shared {
  WarpRows rows[kWarps];
};

struct Place {
  WarpRows& rows;
  std::int64_t task;
  int lane;
};
__device__ __forceinline__ Place place() {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  return {shared_memory<Shared>().rows[warp], std::int64_t{blockIdx.x} * kWarps + warp,
          static_cast<int>(threadIdx.x) % kWarp};
}

template <class T>
__device__ __forceinline__ void load_row(float* to, const T* row, int width) {
  for (int d = static_cast<int>(threadIdx.x) % kWarp; d < width; d += kWarp) to[d] = to_float(row[d]);
}
template <class T>
__device__ __forceinline__ float dot(const float* a, const T* b, int width) {
  float sum = 0;
#pragma unroll 4
  for (int d = 0; d < width; ++d) sum += a[d] * to_float(b[d]);
  return sum;
}

/// A row of a head, distributed over the lanes of a warp.
struct LaneRow {
  float v[kElements] = {};

  __device__ __forceinline__ void scale(float s) {
#pragma unroll
    for (float& x : v) x *= s;
  }
  template <class T>
  __device__ __forceinline__ void add(float weight, const T* row, int width) {
#pragma unroll
    for (int c = 0; c < kElements; ++c) {
      const int d = static_cast<int>(threadIdx.x) % kWarp + c * kWarp;
      if (d < width) v[c] += weight * to_float(row[d]);
    }
  }
  template <class T>
  __device__ __forceinline__ void put(const Target<T>& to, std::int64_t at, int width) const {
#pragma unroll
    for (int c = 0; c < kElements; ++c) {
      const int d = static_cast<int>(threadIdx.x) % kWarp + c * kWarp;
      if (d < width) to.put(at + d, v[c]);
    }
  }
};

/// The score of a query and a key, divided by score_scale.
template <Scores S>
__device__ __forceinline__ float unscaled_score(const AttentionBatch& n, float product) {
  return S == Scores::capped ? tanhf(n.tanh_scale * product) : product;
}

template <class T, Scores S>
// Limited to 6 resident blocks: for more, the compiler would spill registers.
__global__ void __launch_bounds__(kWarps* kWarp, 6) attention_rows(AttentionBatch n, AttentionTensors<T> x) {
  const Place p = place();
  if (p.task >= std::int64_t{n.rows()} * n.heads) return;
  const int t = n.queries.begin + static_cast<int>(p.task / n.heads), head = static_cast<int>(p.task % n.heads);
  const int group = n.group_of(head), begin = n.first_key(t);
  load_row(p.rows.a, x.q + n.query(t, head), n.width);
  __syncwarp();
  LaneRow out;
  float max = -INFINITY, sum = 0;
  for (int j0 = begin; j0 <= t; j0 += kWarp) {
    const int j = j0 + p.lane, count = min(kWarp, t + 1 - j0);
    const float score = p.lane < count
                            ? unscaled_score<S>(n, dot(p.rows.a, x.k + n.key(j, group), n.width)) * n.score_scale<S>()
                            : -INFINITY;
    const float larger = Larger{}(max, warp_reduce(score, Larger{}));
    const float weight = p.lane < count ? expf(score - larger) : 0, fade = expf(max - larger);
    sum = sum * fade + warp_sum(weight);
    max = larger;
    out.scale(fade);
    for (int l = 0; l < count; ++l) out.add(__shfl_sync(kAllLanes, weight, l), x.v + n.key(j0 + l, group), n.width);
  }
  RowEnd end{max, sum};
  if (x.sinks && begin <= t) end.add_sink(x.sinks[head]);
  out.scale(begin > t ? 0 : end.factor / end.sum);
  out.put(Target<T>{x.y}, n.query(t, head), n.width);
  if (p.lane == 0) x.lse[n.row(head, t)] = begin > t ? 0 : end.lse();
}

/// p_ij, and the gradient of the dot product q_i . k_j.
struct Weights {
  float p, ds;
};
struct PairOf {
  float product, dp;  ///< q_i . k_j, dy_i . v_j
  int i, head;
};
template <Scores S, class T>
__device__ __forceinline__ Weights weights(const AttentionBatch& n, const GradientTensors<T>& x, const PairOf& pair) {
  const int first_head = x.first_group * (n.heads / n.groups);
  const float score = unscaled_score<S>(n, pair.product);
  const float p = expf(score * n.score_scale<S>() - x.lse[n.row(pair.head, pair.i)]);
  const float ds = p * (pair.dp - x.delta[n.row(pair.head - first_head, pair.i)]) * n.scale;
  return {p, S == Scores::capped ? ds * (1.0f - score * score) : ds};
}

template <class T, Scores S>
__global__ void __launch_bounds__(kWarps* kWarp) attention_dq_rows(AttentionBatch n, GradientTensors<T> x) {
  const Place p = place();
  const int share = n.heads / n.groups, heads = x.pass_groups * share;
  if (p.task >= std::int64_t{n.rows()} * heads) return;
  const int i = n.queries.begin + static_cast<int>(p.task / heads),
            head = x.first_group * share + static_cast<int>(p.task % heads);
  const int group = n.group_of(head);
  load_row(p.rows.a, x.q + n.query(i, head), n.width);
  load_row(p.rows.b, x.dy + n.query(i, head), n.width);
  __syncwarp();
  LaneRow out;
  for (int j0 = n.first_key(i); j0 <= i; j0 += kWarp) {
    const int count = min(kWarp, i + 1 - j0);
    Weights w{0, 0};
    if (p.lane < count) {
      const std::int64_t at = n.key(j0 + p.lane, group);
      w = weights<S>(n, x, {dot(p.rows.a, x.k + at, n.width), dot(p.rows.b, x.v + at, n.width), i, head});
    }
    for (int l = 0; l < count; ++l) out.add(__shfl_sync(kAllLanes, w.ds, l), x.k + n.key(j0 + l, group), n.width);
  }
  out.put(x.dq, n.query(i, head), n.width);
}

template <class T, Scores S>
// Limited to 6 resident blocks: for more, the compiler would spill registers.
__global__ void __launch_bounds__(kWarps* kWarp, 6) attention_dkdv_rows(AttentionBatch n, GradientTensors<T> x) {
  const Place p = place();
  if (p.task >= std::int64_t{n.tokens} * x.pass_groups) return;
  const int j = static_cast<int>(p.task / x.pass_groups), share = n.heads / n.groups;
  const int group = x.first_group + static_cast<int>(p.task % x.pass_groups);
  const int first = max(j, n.queries.begin), last = min(n.last_query(j), n.queries.end - 1);
  load_row(p.rows.a, x.k + n.key(j, group), n.width);
  load_row(p.rows.b, x.v + n.key(j, group), n.width);
  __syncwarp();
  LaneRow dk, dv;
  for (int head = group * share; head < (group + 1) * share; ++head)
    for (int i0 = first; i0 <= last; i0 += kWarp) {
      const int count = min(kWarp, last + 1 - i0);
      Weights w{0, 0};
      if (p.lane < count) {
        const std::int64_t at = n.query(i0 + p.lane, head);
        w = weights<S>(n, x, {dot(p.rows.a, x.q + at, n.width), dot(p.rows.b, x.dy + at, n.width), i0 + p.lane, head});
      }
      for (int l = 0; l < count; ++l) {
        const std::int64_t at = n.query(i0 + l, head);
        dk.add(__shfl_sync(kAllLanes, w.ds, l), x.q + at, n.width);
        dv.add(__shfl_sync(kAllLanes, w.p, l), x.dy + at, n.width);
      }
    }
  if (x.dk.data) dk.put(x.dk, n.key(j, group), n.width);
  if (x.dv.data) dv.put(x.dv, n.key(j, group), n.width);
}

Grid grid_for(std::int64_t warps) {
  return {static_cast<unsigned>(ceil_div(warps, std::int64_t{kWarps})), kWarps * kWarp, sizeof(Shared)};
}

}  // namespace

void attention_plain(Ctx& ctx, const Attention& a) {
  const AttentionBatch batch = batch_of(a);
  dispatch_storage(a.q.dtype, [&]<class T>() {
    dispatch_scores(batch.softcap, [&]<Scores S>() {
      launch(ctx, "attention", attention_rows<T, S>, grid_for(std::int64_t{batch.rows()} * batch.heads), batch,
             tensors_of<T>(a));
    });
  });
}

template <class T>
void attention_grad_plain(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x) {
  const std::int64_t keys = std::int64_t{batch.tokens} * x.pass_groups;
  const std::int64_t queries = std::int64_t{batch.rows()} * x.pass_groups * (batch.heads / batch.groups);
  dispatch_scores(batch.softcap, [&]<Scores S>() {
    if (x.dk.data || x.dv.data) launch(ctx, "attention_dkdv", attention_dkdv_rows<T, S>, grid_for(keys), batch, x);
    if (x.dq.data) launch(ctx, "attention_dq", attention_dq_rows<T, S>, grid_for(queries), batch, x);
  });
}
template void attention_grad_plain(Ctx&, const AttentionBatch&, const GradientTensors<float>&);
template void attention_grad_plain(Ctx&, const AttentionBatch&, const GradientTensors<Bf16>&);
template void attention_grad_plain(Ctx&, const AttentionBatch&, const GradientTensors<F16>&);

}  // namespace qtrain::ops
