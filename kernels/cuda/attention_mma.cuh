#pragma once
#include "kernels/cuda/attention.cuh"

/// Attention on tensor cores (mma.sync m16n8k16, ldmatrix, cp.async): tiles in shared memory and fragments in
/// registers. A block has four warps; warp w holds rows 16 M w to 16 M (w + 1) of its tile, as M fragments of 16 rows.
/// An accumulator float c[M][N][4] holds N fragments of 8 columns: with r = lane / 4 and p = lane % 4, c[i][j] holds
/// the elements (16 i + r, 8 j + 2 p + {0, 1}) and (16 i + r + 8, 8 j + 2 p + {0, 1}).
namespace qtrain::ops {

inline constexpr int kAttentionWarps = 4, kAttentionThreads = kAttentionWarps * kWarp;
inline constexpr int kChunk = 8;  ///< 16-bit elements in 16 bytes
inline constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x % kWarp);
}
__device__ __forceinline__ int warp_id() {
  return static_cast<int>(threadIdx.x / kWarp);
}

/// Rows of Width 16-bit elements. Chunks are swizzled within their row, so that the eight rows of a matrix that
/// ldmatrix reads are in different banks.
template <class T, int Rows, int Width>
struct alignas(128) Tile {
  static constexpr int kChunks = Width / kChunk, kSwapped = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;
  static_assert(kChunks % kSwapped == 0 && Rows % 16 == 0);
  T v[Rows * Width];

  __device__ __forceinline__ static int offset(int row, int chunk) {
    const int swap = kSwapped == 8 ? row & 7 : kSwapped == 4 ? (row >> 1) & 3 : (row >> 2) & 1;
    return row * Width + (chunk ^ swap) * kChunk;
  }
  /// The offset `chunk` chunks (an even constant) after `offset`, which is that of chunk 0 or 1. Takes one instruction
  /// and, over all chunks, few registers.
  __device__ __forceinline__ static int moved(int offset, int chunk) {
    return (offset ^ (chunk % kSwapped * kChunk)) + chunk / kSwapped * kSwapped * kChunk;
  }
};

/// Rows of one head in global memory; `end` is one past the last row.
template <class T>
struct HeadRows {
  const T* data;
  std::int64_t stride;
  int end, width;
};

/// Starts copying rows `first`, `first` + 1, ... to a tile, with all threads of a block. Rows and elements out of range
/// become zero.
template <int Threads = kAttentionThreads, class T, int Rows, int Width>
__device__ __forceinline__ void copy_rows(Tile<T, Rows, Width>& tile, const HeadRows<T>& from, int first) {
  constexpr int kAcross = Tile<T, Rows, Width>::kSwapped, kStep = Threads / kAcross;
  static_assert(Rows % kStep == 0);
  int across = static_cast<int>(threadIdx.x % kAcross), row0 = static_cast<int>(threadIdx.x / kAcross);
  ptx::opaque(across);
  ptx::opaque(row0);
  const T* source = from.data + (first + row0) * from.stride + across * kChunk;
#pragma unroll
  for (int r = 0; r < Rows; r += kStep) {
#pragma unroll
    for (int c = 0; c < Width / kChunk; c += kAcross) {
      const bool there = first + row0 + r < from.end && (c + across) * kChunk < from.width;
      ptx::cp_async<16>(tile.v + tile.moved(tile.offset(row0 + r, across), c), source + c * kChunk, there ? 16 : 0);
    }
    source += kStep * from.stride;
  }
}

template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, Bf16>)
    ptx::mma_bf16(d, a, b, d);
  else
    ptx::mma_f16(d, a, b, d);
}
/// Multiplies two adjacent fragments of 8 columns.
template <class T>
__device__ __forceinline__ void mma_pair(float (&left)[4], float (&right)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[4]) {
  const std::uint32_t b0[2] = {b[0], b[1]}, b1[2] = {b[2], b[3]};
  mma<T>(left, a, b0);
  mma<T>(right, a, b1);
}

/// c += A B^T, with the rows of A starting at `row` and 8 N rows of B from `row_b` on.
template <class T, int M, int N, int RowsA, int RowsB, int Width>
__device__ __forceinline__ void multiply_rows(float (&c)[M][N][4], const Tile<T, RowsA, Width>& a, int row,
                                              const Tile<T, RowsB, Width>& b, int row_b = 0) {
  const int lane = lane_id();
  const T* shared = &shared_memory<T>();
  int at_a = static_cast<int>(a.v - shared) + a.offset(row + lane % 16, lane / 16);
  int at_b = static_cast<int>(b.v - shared) + b.offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
  ptx::opaque(at_a);
  ptx::opaque(at_b);
#pragma unroll
  for (int k = 0; k < Width / 16; ++k) {
    std::uint32_t fa[M][4];
#pragma unroll
    for (int i = 0; i < M; ++i) ptx::ldmatrix(fa[i], shared + a.moved(at_a, 2 * k) + 16 * i * Width);
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      std::uint32_t fb[4];
      ptx::ldmatrix(fb, shared + b.moved(at_b, 2 * k) + (row_b + 8 * j) * Width);
#pragma unroll
      for (int i = 0; i < M; ++i) mma_pair<T>(c[i][j], c[i][j + 1], fa[i], fb);
    }
  }
}

/// c += P B, with P in fragments (see fragments_of) and 16 K rows of B from `row_b` on.
template <class T, int M, int K, int N, int Rows, int Width>
__device__ __forceinline__ void multiply(float (&c)[M][N][4], const std::uint32_t (&p)[M][K][4],
                                         const Tile<T, Rows, Width>& b, int row_b = 0) {
  const T* shared = &shared_memory<T>();
  int at_b = static_cast<int>(b.v - shared) + b.offset(lane_id() % 16, lane_id() / 16);
  ptx::opaque(at_b);
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      std::uint32_t fb[4];
      ptx::ldmatrix_transposed(fb, shared + b.moved(at_b, j) + (row_b + 16 * k) * Width);
#pragma unroll
      for (int i = 0; i < M; ++i) mma_pair<T>(c[i][j], c[i][j + 1], p[i][k], fb);
    }
}

/// Rounds 16 rows of an accumulator for use as the left operand of a GEMM: their columns become the inner dimension.
template <class T, int N>
__device__ __forceinline__ void fragments_of(std::uint32_t (&p)[N / 2][4], const float (&c)[N][4]) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    p[j / 2][j % 2 * 2] = pack_pair<T>(c[j][0], c[j][1]);
    p[j / 2][j % 2 * 2 + 1] = pack_pair<T>(c[j][2], c[j][3]);
  }
}
template <class T, int M, int N>
__device__ __forceinline__ void fragments_of(std::uint32_t (&p)[M][N / 2][4], const float (&c)[M][N][4]) {
#pragma unroll
  for (int i = 0; i < M; ++i) fragments_of<T, N>(p[i], c[i]);
}

/// Calls f(i, h) for the calling lane's rows 16 i + r + 8 h.
template <int M, class F>
__device__ __forceinline__ void for_rows(const F& f) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) f(i, h);
}

/// Writes row (i, h) of an accumulator times `scale` to the destination, starting at element `at`.
template <class T, int N>
__device__ __forceinline__ void put_row(const Target<T>& to, std::int64_t at, const float (&c)[N][4], int h,
                                        float scale, int width) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int column = 8 * j + lane_id() % 4 * 2;
    const float v[2] = {c[j][2 * h] * scale, c[j][2 * h + 1] * scale};
    if (column < width) to.put_pack(at + column, v);
  }
}

/// Masks the keys that a query does not see. `begin` and `token` belong to the lane's first row.
template <int M, int N>
__device__ __forceinline__ void mask_keys(float (&s)[M][N][4], const int* begin, int token, int key) {
  for_rows<M>([&](int i, int h) {
    const int last = token + 16 * i + 8 * h, first = begin[16 * i + 8 * h];
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = key + 8 * j + lane_id() % 4 * 2 + e;
        if (column > last || column < first) s[i][j][2 * h + e] = -INFINITY;
      }
  });
}

/// Converts dot products to tanh(factor * dot product), which are capped scores divided by score_scale.
template <class T, int M, int N>
__device__ __forceinline__ void cap_scores(float (&s)[M][N][4], float factor) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[i][j][e] = tanh_for<T>(factor * s[i][j][e]);
}
/// The derivative of tanh at the value t; 0 for the -infinity of a masked pair.
__device__ __forceinline__ float tanh_slope(float t) {
  return fmaxf(1.0f - t * t, 0.0f);
}

/// Sum or maximum over the four lanes that share a row.
template <class Op>
__device__ __forceinline__ float row_reduce(float v, Op op) {
  v = op(v, __shfl_xor_sync(kAllLanes, v, 1));
  return op(v, __shfl_xor_sync(kAllLanes, v, 2));
}

/// Calls f.operator()<Width, S>() with the tile width for the heads of a batch. Heads with capped scores usually have
/// 128 or 256 elements (Gemma 2); others use the next larger tiles, so that fewer kernels are compiled.
template <class F>
void dispatch_tiles(const AttentionBatch& batch, const F& f) {
  if (batch.softcap > 0)
    batch.width <= 128 ? f.template operator()<128, Scores::capped>() : f.template operator()<256, Scores::capped>();
  else if (batch.width <= 64)
    f.template operator()<64, Scores::plain>();
  else if (batch.width <= 96)
    f.template operator()<96, Scores::plain>();
  else if (batch.width <= 128)
    f.template operator()<128, Scores::plain>();
  else
    f.template operator()<256, Scores::plain>();
}

}  // namespace qtrain::ops
