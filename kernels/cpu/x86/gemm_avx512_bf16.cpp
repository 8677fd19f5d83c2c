#include <immintrin.h>

#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/x86/transpose.h"

namespace qtrain::ops {
namespace {

constexpr int kMaxRows = 8, kLanes = 16, kVectors = 3, kWidth = kLanes * kVectors;

template <int Rows, int Vectors>
void multiply(const TileCall& call) {
  // Copies, because stores to the tile may alias `call`.
  const std::int64_t step = call.a_group, b_step = call.b_group, groups = call.groups, tile_row = call.tile_row;
  float* tile = call.tile;
  const auto* b = static_cast<const std::int32_t*>(call.b);  // bf16 pairs
  const std::int32_t* a[Rows];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
    a[i] = static_cast<const std::int32_t*>(call.a) + (i < call.rows ? i : call.rows - 1) * call.a_row;
  __m512 sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v)
      sum[i][v] = call.add ? _mm512_loadu_ps(tile + i * tile_row + v * kLanes) : _mm512_setzero_ps();
  for (std::int64_t k = 0, at = 0; k < groups; ++k, at += step, b += b_step) {
    __m512bh row[Vectors];
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) row[v] = (__m512bh)_mm512_loadu_si512(b + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const auto x = (__m512bh)_mm512_set1_epi32(a[i][at]);
#pragma GCC unroll 3
      for (int v = 0; v < Vectors; ++v) sum[i][v] = _mm512_dpbf16_ps(sum[i][v], x, row[v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) _mm512_storeu_ps(tile + i * tile_row + v * kLanes, sum[i][v]);
}

/// Eight columns of b, 32 bytes of each: one pair of k after the other.
template <int Rows>
[[gnu::always_inline]] inline void add_eight(const std::byte* b, std::int64_t b_column, const std::int32_t* (&a)[Rows],
                                             std::int64_t step, __m256 (&sum)[Rows]) {
  __m256i words[8];
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) words[c] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + c * b_column));
  transpose_words(words);
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g)
#pragma GCC unroll 2
    for (int i = 0; i < Rows; ++i)
      sum[i] = _mm256_dpbf16_ps(sum[i], (__m256bh)_mm256_set1_epi32(a[i][g * step]), (__m256bh)words[g]);
}

template <int Rows>
void stream(const StreamCall& call) {
  constexpr int kDepth = 16, kHalf = kStreamed / 2, kVector = 32;
  const std::int64_t step = call.a_group, b_column = call.b_column, depth = call.depth;
  const std::int32_t *a[Rows], *next[Rows];
  for (int i = 0; i < Rows; ++i) {
    a[i] = static_cast<const std::int32_t*>(call.a) + i * call.a_row;
    next[i] = a[i] + 8 * step;
  }
  const std::byte* b = call.b;
  __m256 left[Rows], right[Rows];
  for (int i = 0; i < Rows; ++i) {
    left[i] = _mm256_loadu_ps(call.tile + i * call.tile_row);
    right[i] = _mm256_loadu_ps(call.tile + i * call.tile_row + kHalf);
  }
  for (std::int64_t k = 0; k < depth; k += 2 * kDepth, b += 2 * kVector) {
    add_eight<Rows>(b, b_column, a, step, left);
    add_eight<Rows>(b + kVector, b_column, next, step, left);
    add_eight<Rows>(b + kHalf * b_column, b_column, a, step, right);
    add_eight<Rows>(b + kHalf * b_column + kVector, b_column, next, step, right);
    for (int i = 0; i < Rows; ++i) a[i] += kDepth * step, next[i] += kDepth * step;
  }
  for (int i = 0; i < Rows; ++i) {
    _mm256_storeu_ps(call.tile + i * call.tile_row, left[i]);
    _mm256_storeu_ps(call.tile + i * call.tile_row + kHalf, right[i]);
  }
}

}  // namespace

const TileKernel kTileAvx512Bf16{.mr = kMaxRows,
                                 .nr = kWidth,
                                 .lanes = kLanes,
                                 .k_group = 2,
                                 .k_block = 1536,
                                 .strip = 96,
                                 .heights = {1, 2, 4, kMaxRows},
                                 .run = {{multiply<1, 1>, multiply<1, 2>, multiply<1, 3>},
                                         {multiply<2, 1>, multiply<2, 2>, multiply<2, 3>},
                                         {multiply<4, 1>, multiply<4, 2>, multiply<4, 3>},
                                         {multiply<kMaxRows, 1>, multiply<kMaxRows, 2>, multiply<kMaxRows, 3>}},
                                 .stream_bf16 = {stream<1>, stream<2>}};

}  // namespace qtrain::ops
