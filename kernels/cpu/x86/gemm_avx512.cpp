#include <immintrin.h>

#include "kernels/cpu/gemm_tile.h"

namespace qtrain::ops {
namespace {

constexpr int kMaxRows = 8, kLanes = 16, kVectors = 3, kWidth = kLanes * kVectors;

template <int Rows, int Vectors>
void multiply(const TileCall& call) {
  // Local copies, because stores to the tile may alias `call`.
  const std::int64_t step = call.a_group, b_step = call.b_group, groups = call.groups, tile_row = call.tile_row;
  float* tile = call.tile;
  const auto* b = static_cast<const float*>(call.b);
  const float* a[Rows];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
    a[i] = static_cast<const float*>(call.a) + (i < call.rows ? i : call.rows - 1) * call.a_row;
  __m512 sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v)
      sum[i][v] = call.add ? _mm512_loadu_ps(tile + i * tile_row + v * kLanes) : _mm512_setzero_ps();
  for (std::int64_t k = 0, at = 0; k < groups; ++k, at += step, b += b_step) {
    __m512 row[Vectors];
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) row[v] = _mm512_loadu_ps(b + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const __m512 x = _mm512_set1_ps(a[i][at]);
#pragma GCC unroll 3
      for (int v = 0; v < Vectors; ++v) sum[i][v] = _mm512_fmadd_ps(x, row[v], sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) _mm512_storeu_ps(tile + i * tile_row + v * kLanes, sum[i][v]);
}

}  // namespace

const TileKernel kTileAvx512{.mr = kMaxRows,
                             .nr = kWidth,
                             .lanes = kLanes,
                             .k_group = 1,
                             .k_block = 768,
                             .strip = 96,
                             .heights = {1, 2, 4, kMaxRows},
                             .run = {{multiply<1, 1>, multiply<1, 2>, multiply<1, 3>},
                                     {multiply<2, 1>, multiply<2, 2>, multiply<2, 3>},
                                     {multiply<4, 1>, multiply<4, 2>, multiply<4, 3>},
                                     {multiply<kMaxRows, 1>, multiply<kMaxRows, 2>, multiply<kMaxRows, 3>}}};

}  // namespace qtrain::ops
