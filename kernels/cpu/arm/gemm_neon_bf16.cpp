#include <arm_neon.h>

#include "kernels/cpu/arm/transpose.h"
#include "kernels/cpu/gemm_tile.h"

namespace qtrain::ops {
namespace {

constexpr int kMaxRows = 6, kLanes = 8, kVectors = 2, kWidth = kLanes * kVectors, kStreamed = 16;

/// Eight sums (Sums), and eight pairs of bf16 (Pairs).
struct Sums {
  float32x4_t low, high;
};
struct Pairs {
  uint32x4_t low, high;
};

[[gnu::always_inline]] inline Sums load_sums(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4)};
}
[[gnu::always_inline]] inline void store_sums(float* p, const Sums& s) {
  vst1q_f32(p, s.low);
  vst1q_f32(p + 4, s.high);
}
[[gnu::always_inline]] inline Pairs load_pairs(const void* p) {
  const auto* bytes = static_cast<const std::uint8_t*>(p);
  return {vreinterpretq_u32_u8(vld1q_u8(bytes)), vreinterpretq_u32_u8(vld1q_u8(bytes + 16))};
}
/// s + x * column for one pair of x.
[[gnu::always_inline]] inline Sums add_products(const Sums& s, std::uint32_t pair, const Pairs& column) {
  const bfloat16x8_t x = vreinterpretq_bf16_u32(vdupq_n_u32(pair));
  return {vbfdotq_f32(s.low, x, vreinterpretq_bf16_u32(column.low)),
          vbfdotq_f32(s.high, x, vreinterpretq_bf16_u32(column.high))};
}

template <int Rows, int Vectors>
void multiply(const TileCall& call) {
  // Local copies, because stores to the tile may alias `call`.
  const std::int64_t step = call.a_group, b_step = call.b_group, groups = call.groups, tile_row = call.tile_row;
  float* tile = call.tile;
  const auto* b = static_cast<const std::uint32_t*>(call.b);  // bf16 pairs
  const std::uint32_t* a[Rows];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
    a[i] = static_cast<const std::uint32_t*>(call.a) + (i < call.rows ? i : call.rows - 1) * call.a_row;
  Sums sum[Rows][Vectors];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sum[i][v] = call.add ? load_sums(tile + i * tile_row + v * kLanes) : Sums{};
  for (std::int64_t k = 0, at = 0; k < groups; ++k, at += step, b += b_step) {
    Pairs row[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) row[v] = load_pairs(b + v * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) sum[i][v] = add_products(sum[i][v], a[i][at], row[v]);
  }
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) store_sums(tile + i * tile_row + v * kLanes, sum[i][v]);
}

/// Eight columns of b, 32 bytes of each, processed one pair of k at a time.
template <int Rows>
[[gnu::always_inline]] inline void add_eight(const std::byte* b, std::int64_t b_column, const std::uint32_t* (&a)[Rows],
                                             std::int64_t step, Sums (&sum)[Rows]) {
  Pairs columns[8];
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) columns[c] = load_pairs(b + c * b_column);
  transpose_words(columns);
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g)
#pragma GCC unroll 2
    for (int i = 0; i < Rows; ++i) sum[i] = add_products(sum[i], a[i][g * step], columns[g]);
}

template <int Rows>
void stream(const StreamCall& call) {
  constexpr int kDepth = 16, kHalf = kStreamed / 2, kVector = 32;
  const std::int64_t step = call.a_group, b_column = call.b_column, depth = call.depth;
  const std::uint32_t *a[Rows], *next[Rows];
  for (int i = 0; i < Rows; ++i) {
    a[i] = static_cast<const std::uint32_t*>(call.a) + i * call.a_row;
    next[i] = a[i] + 8 * step;
  }
  const std::byte* b = call.b;
  Sums left[Rows], right[Rows];
  for (int i = 0; i < Rows; ++i) {
    left[i] = load_sums(call.tile + i * call.tile_row);
    right[i] = load_sums(call.tile + i * call.tile_row + kHalf);
  }
  for (std::int64_t k = 0; k < depth; k += 2 * kDepth, b += 2 * kVector) {
    add_eight<Rows>(b, b_column, a, step, left);
    add_eight<Rows>(b + kVector, b_column, next, step, left);
    add_eight<Rows>(b + kHalf * b_column, b_column, a, step, right);
    add_eight<Rows>(b + kHalf * b_column + kVector, b_column, next, step, right);
    for (int i = 0; i < Rows; ++i) a[i] += kDepth * step, next[i] += kDepth * step;
  }
  for (int i = 0; i < Rows; ++i) {
    store_sums(call.tile + i * call.tile_row, left[i]);
    store_sums(call.tile + i * call.tile_row + kHalf, right[i]);
  }
}

}  // namespace

const TileKernel kTileNeonBf16{.mr = kMaxRows,
                               .nr = kWidth,
                               .lanes = kLanes,
                               .k_group = 2,
                               .k_block = 1280,
                               .strip = 48,
                               .heights = {1, 2, 4, kMaxRows},
                               .run = {{multiply<1, 1>, multiply<1, 2>},
                                       {multiply<2, 1>, multiply<2, 2>},
                                       {multiply<4, 1>, multiply<4, 2>},
                                       {multiply<kMaxRows, 1>, multiply<kMaxRows, 2>}},
                               .streamed = kStreamed,
                               .stream_bf16 = {stream<1>, stream<2>}};

}  // namespace qtrain::ops
