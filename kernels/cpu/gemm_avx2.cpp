#include <immintrin.h>

#include "kernels/cpu/gemm_tile.h"

namespace qtrain::ops {
namespace {

constexpr int kRows = 6, kLanes = 8, kVectors = 2, kWidth = kLanes * kVectors;

template <int Vectors>
void multiply(const TileCall& call) {
  // Copies, because stores to the tile may alias `call`.
  const std::int64_t step = call.a_group, b_step = call.b_group, groups = call.groups, tile_row = call.tile_row;
  float* tile = call.tile;
  const auto* b = static_cast<const float*>(call.b);
  const float* a[kRows];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i)
    a[i] = static_cast<const float*>(call.a) + (i < call.rows ? i : call.rows - 1) * call.a_row;
  __m256 sum[kRows][Vectors];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
      sum[i][v] = call.add ? _mm256_loadu_ps(tile + i * tile_row + v * kLanes) : _mm256_setzero_ps();
  for (std::int64_t k = 0, at = 0; k < groups; ++k, at += step, b += b_step) {
    __m256 row[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) row[v] = _mm256_loadu_ps(b + v * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m256 x = _mm256_broadcast_ss(a[i] + at);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) sum[i][v] = _mm256_fmadd_ps(x, row[v], sum[i][v]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) _mm256_storeu_ps(tile + i * tile_row + v * kLanes, sum[i][v]);
}

}  // namespace

const TileKernel kTileAvx2{.mr = kRows,
                           .nr = kWidth,
                           .lanes = kLanes,
                           .k_group = 1,
                           .k_block = 640,
                           .strip = 48,
                           .run = {multiply<1>, multiply<2>, nullptr}};

}  // namespace qtrain::ops
