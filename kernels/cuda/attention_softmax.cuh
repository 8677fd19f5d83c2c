#pragma once
#include "kernels/cuda/attention_mma.cuh"

/// The softmax of the forward kernels on tensor cores, which loop over tiles of keys ("online softmax"): with a tile of
/// scores s,
///   m' = max(m, max s),  p = e^(s - m'),  l' = l e^(m - m') + sum p,  out' = out e^(m - m') + p v;  y = out / l.
namespace qtrain::ops {

/// The softmax of a lane's rows in M fragments of 16, with Keys keys per tile. `sum` is the lane's partial sum until
/// the end.
template <int M, int Keys>
struct RowSoftmax {
  float max[M][2], sum[M][2];

  /// Raises the maxima to those of new scores; `scale` includes log2 e. Earlier sums must be multiplied by `fade`;
  /// returns whether that differs from 1 for a row of the lane. A maximum may lag behind the true one by up to kSlack,
  /// so weights are at most 2^kSlack and accumulated values rarely need rescaling.
  __device__ __forceinline__ bool raise(const float (&s)[M][Keys / 8][4], float scale, float (&fade)[M][2]) {
    constexpr float kSlack = 8;
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
    return fades;
  }

  /// Converts scores to weights and adds them to the sums.
  __device__ __forceinline__ void weigh(float (&s)[M][Keys / 8][4], float scale) {
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
};

/// Multiplies rows of an accumulator by their factors.
template <int M, int N>
__device__ __forceinline__ void scale_rows(float (&c)[M][N][4], const float (&factor)[M][2]) {
  for_rows<M>([&](int i, int h) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      c[i][j][2 * h] *= factor[i][h];
      c[i][j][2 * h + 1] *= factor[i][h];
    }
  });
}

/// Rows of a head: tokens from `first` on, before `end`.
struct RowsOfHead {
  int first, end, head;
};
/// Writes y and lse for the lane's rows.
template <class T, Scores S, int M, int Keys, int N>
__device__ __forceinline__ void put_results(const AttentionBatch& n, const AttentionTensors<T>& x,
                                            const RowsOfHead& rows, const RowSoftmax<M, Keys>& softmax,
                                            const float (&out)[M][N][4]) {
  for_rows<M>([&](int i, int h) {
    const int t = rows.first + 16 * i + 8 * h;
    const float sum = row_reduce(softmax.sum[i][h], Plus{});
    if (t >= rows.end) return;
    const bool sees = sum != 0;  // the first visible key had weight 1
    RowEnd end{softmax.max[i][h] * n.score_scale<S>(), sum};
    if (x.sinks && sees) end.add_sink(x.sinks[rows.head]);
    put_row(Target<T>{x.y}, n.query(t, rows.head), out[i], h, sees ? end.factor / end.sum : 0, n.width);
    if (lane_id() % 4 == 0) x.lse[n.row(rows.head, t)] = sees ? end.lse() : 0;
  });
}

}  // namespace qtrain::ops
