#pragma once
#include "kernels/cpu/loops.h"
#include "kernels/gemm.h"

namespace qtrain::ops {

/// A finished f32 tile [rows, columns], with rows `stride` apart, for C[row.., column..].
struct Tile {
  const float* data;
  std::int64_t stride, row, column, rows, columns;
};

template <class C, class B>
void finish_tile_as(const Gemm& g, const Tile& tile) {
  const std::int64_t step = row_step(g.c.t, g.c_stride);
  C* c = reinterpret_cast<C*>(g.c.t.data) + tile.row * step + tile.column;
  const B* bias = g.bias ? reinterpret_cast<const B*>(g.bias.data) + tile.column : nullptr;
  const simd::Vec<float> alpha = simd::broadcast(static_cast<float>(g.alpha));
  for (std::int64_t i = 0; i < tile.rows; ++i, c += step) {
    const float* from = tile.data + i * tile.stride;
    simd::each<float>(tile.columns, [&](std::int64_t j, auto lanes) {
      simd::Vec<float> v = alpha * simd::load<float>(from + j);
      if (bias) v += simd::load<float>(bias + j, lanes);
      write<float>(c + j, v, lanes, g.c.mode);
    });
  }
}

/// C = or += alpha * tile + bias. Reads the tile in whole vectors: columns up to a multiple of 8 must be readable.
using FinishTile = void (*)(const Gemm&, const Tile&);
inline FinishTile finish_tile_for(const Gemm& g) {
  FinishTile f = nullptr;
  dispatch_float(g.c.t.dtype, [&]<class C>() {
    dispatch_float(g.bias ? g.bias.dtype : DType::f32, [&]<class B>() { f = finish_tile_as<C, B>; });
  });
  return f;
}

}  // namespace qtrain::ops
