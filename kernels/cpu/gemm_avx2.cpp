#include <immintrin.h>

#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/gemm_transpose.h"

namespace qtrain::ops {
namespace {

constexpr int kMaxRows = 6, kLanes = 8, kVectors = 2, kWidth = kLanes * kVectors;

template <int Rows, int Vectors>
void multiply(const TileCall& call) {
  // Copies, because stores to the tile may alias `call`.
  const std::int64_t step = call.a_group, b_step = call.b_group, groups = call.groups, tile_row = call.tile_row;
  float* tile = call.tile;
  const auto* b = static_cast<const float*>(call.b);
  const float* a[Rows];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
    a[i] = static_cast<const float*>(call.a) + (i < call.rows ? i : call.rows - 1) * call.a_row;
  __m256 sum[Rows][Vectors];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
      sum[i][v] = call.add ? _mm256_loadu_ps(tile + i * tile_row + v * kLanes) : _mm256_setzero_ps();
  for (std::int64_t k = 0, at = 0; k < groups; ++k, at += step, b += b_step) {
    __m256 row[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) row[v] = _mm256_loadu_ps(b + v * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i) {
      const __m256 x = _mm256_broadcast_ss(a[i] + at);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) sum[i][v] = _mm256_fmadd_ps(x, row[v], sum[i][v]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) _mm256_storeu_ps(tile + i * tile_row + v * kLanes, sum[i][v]);
}

/// Eight columns of b, 32 bytes of each, times f32 rows: one value of k after the other.
template <int Rows, bool Bf16>
[[gnu::always_inline]] inline void add_eight(const std::byte* b, std::int64_t b_column, const float* (&a)[Rows],
                                             std::int64_t step, __m256 (&sum)[Rows]) {
  __m256i words[8];
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) words[c] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + c * b_column));
  transpose_words(words);
  const auto add = [&](__m256i column, std::int64_t k) {
#pragma GCC unroll 2
    for (int i = 0; i < Rows; ++i)
      sum[i] = _mm256_fmadd_ps(_mm256_broadcast_ss(a[i] + k * step), _mm256_castsi256_ps(column), sum[i]);
  };
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    if constexpr (Bf16) {
      add(_mm256_slli_epi32(words[g], 16), 2 * g);
      add(_mm256_and_si256(words[g], _mm256_set1_epi32(static_cast<int>(0xffff0000U))), 2 * g + 1);
    } else {
      add(words[g], g);
    }
  }
}

template <int Rows, bool Bf16>
void stream(const StreamCall& call) {
  constexpr int kDepth = Bf16 ? 16 : 8, kHalf = kStreamed / 2, kVector = 32;
  const std::int64_t step = call.a_group, b_column = call.b_column, depth = call.depth;
  const float *a[Rows], *next[Rows];
  for (int i = 0; i < Rows; ++i) {
    a[i] = static_cast<const float*>(call.a) + i * call.a_row;
    next[i] = a[i] + kDepth * step;
  }
  const std::byte* b = call.b;
  __m256 left[Rows], right[Rows];
  for (int i = 0; i < Rows; ++i) {
    left[i] = _mm256_loadu_ps(call.tile + i * call.tile_row);
    right[i] = _mm256_loadu_ps(call.tile + i * call.tile_row + kHalf);
  }
  // Lines are read whole: rows that lie a power of two apart throw each other out of the first cache.
  for (std::int64_t k = 0; k < depth; k += 2 * kDepth, b += 2 * kVector) {
    add_eight<Rows, Bf16>(b, b_column, a, step, left);
    add_eight<Rows, Bf16>(b + kVector, b_column, next, step, left);
    add_eight<Rows, Bf16>(b + kHalf * b_column, b_column, a, step, right);
    add_eight<Rows, Bf16>(b + kHalf * b_column + kVector, b_column, next, step, right);
    for (int i = 0; i < Rows; ++i) a[i] += 2 * kDepth * step, next[i] += 2 * kDepth * step;
  }
  for (int i = 0; i < Rows; ++i) {
    _mm256_storeu_ps(call.tile + i * call.tile_row, left[i]);
    _mm256_storeu_ps(call.tile + i * call.tile_row + kHalf, right[i]);
  }
}

}  // namespace

const TileKernel kTileAvx2{.mr = kMaxRows,
                           .nr = kWidth,
                           .lanes = kLanes,
                           .k_group = 1,
                           .k_block = 640,
                           .strip = 48,
                           .heights = {1, 2, 4, kMaxRows},
                           .run = {{multiply<1, 1>, multiply<1, 2>},
                                   {multiply<2, 1>, multiply<2, 2>},
                                   {multiply<4, 1>, multiply<4, 2>},
                                   {multiply<kMaxRows, 1>, multiply<kMaxRows, 2>}},
                           .stream_f32 = {stream<1, false>, stream<2, false>},
                           .stream_bf16 = {stream<1, true>, stream<2, true>}};

}  // namespace qtrain::ops
