#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/simd.h"

namespace qtrain::ops {
namespace {

using simd::all_words;
using simd::load_broadcast;
using simd::load_floats;
using simd::load_words;
using simd::store_floats;
using simd::Words;
using Floats = simd::Vec<float>;

constexpr int kMaxRows = 6, kLanes = 8, kVectors = 2, kWidth = kLanes * kVectors, kStreamed = 16;

template <int Rows, int Vectors>
void multiply(const TileCall& call) {
  // Local copies, because stores to the tile may alias `call`.
  const std::int64_t step = call.a_group, b_step = call.b_group, groups = call.groups, tile_row = call.tile_row;
  float* tile = call.tile;
  const auto* b = static_cast<const float*>(call.b);
  const float* a[Rows];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
    a[i] = static_cast<const float*>(call.a) + (i < call.rows ? i : call.rows - 1) * call.a_row;
  Floats sum[Rows][Vectors];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sum[i][v] = call.add ? load_floats(tile + i * tile_row + v * kLanes) : Floats{};
  for (std::int64_t k = 0, at = 0; k < groups; ++k, at += step, b += b_step) {
    Floats row[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) row[v] = load_floats(b + v * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i) {
      const Floats x = load_broadcast(a[i] + at);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) sum[i][v] = simd::fma(x, row[v], sum[i][v]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) store_floats(tile + i * tile_row + v * kLanes, sum[i][v]);
}

/// Eight columns of b, 32 bytes of each, times f32 rows, one value of k at a time.
template <int Rows, bool Bf16>
[[gnu::always_inline]] inline void add_eight(const std::byte* b, std::int64_t b_column, const float* (&a)[Rows],
                                             std::int64_t step, Floats (&sum)[Rows]) {
  Words words[8];
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) words[c] = load_words(b + c * b_column);
  simd::transpose_words(words);
  const auto add = [&](Words column, std::int64_t k) {
#pragma GCC unroll 2
    for (int i = 0; i < Rows; ++i) sum[i] = simd::fma(load_broadcast(a[i] + k * step), simd::floats_of(column), sum[i]);
  };
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    if constexpr (Bf16) {
      add(words[g] << 16, 2 * g);
      add(words[g] & all_words(0xffff0000U), 2 * g + 1);
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
  Floats left[Rows], right[Rows];
  for (int i = 0; i < Rows; ++i) {
    left[i] = load_floats(call.tile + i * call.tile_row);
    right[i] = load_floats(call.tile + i * call.tile_row + kHalf);
  }
  // Reads whole cache lines: rows a power of two apart evict each other from the level-1 cache.
  for (std::int64_t k = 0; k < depth; k += 2 * kDepth, b += 2 * kVector) {
    add_eight<Rows, Bf16>(b, b_column, a, step, left);
    add_eight<Rows, Bf16>(b + kVector, b_column, next, step, left);
    add_eight<Rows, Bf16>(b + kHalf * b_column, b_column, a, step, right);
    add_eight<Rows, Bf16>(b + kHalf * b_column + kVector, b_column, next, step, right);
    for (int i = 0; i < Rows; ++i) a[i] += 2 * kDepth * step, next[i] += 2 * kDepth * step;
  }
  for (int i = 0; i < Rows; ++i) {
    store_floats(call.tile + i * call.tile_row, left[i]);
    store_floats(call.tile + i * call.tile_row + kHalf, right[i]);
  }
}

}  // namespace

const TileKernel kTileF32{.mr = kMaxRows,
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
                          .streamed = kStreamed,
                          .stream_f32 = {stream<1, false>, stream<2, false>},
                          .stream_bf16 = {stream<1, true>, stream<2, true>}};

}  // namespace qtrain::ops
