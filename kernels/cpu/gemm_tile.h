#pragma once
#include <cstddef>
#include <cstdint>

// Only plain declarations: this header is compiled for several instruction sets, and the linker could pick an inline
// function compiled for the widest one for all of them.
namespace qtrain::ops {

/// tile [rows, columns] = or += sum over k of a[0..mr, k] x b[k, 0..columns), in f32; tile rows are `tile_row` apart.
/// The operands are 32-bit words, one per row (column) and group of `k_group` consecutive k: an f32 (k_group 1), or a
/// pair of bf16 (k_group 2) with the lower k in the low half. Word (row, group) of a is a[row * a_row + group *
/// a_group], word (group, column) of b is b[group * b_group + column]. Only `rows` rows of a are read, but mr rows of
/// the tile are written; the extra rows are undefined.
struct TileCall {
  std::int64_t groups;
  const void* a;
  std::int64_t a_row, a_group, rows;
  const void* b;
  std::int64_t b_group;
  float* tile;
  std::int64_t tile_row;
  bool add;
};

using MultiplyTile = void (*)(const TileCall&);

/// tile [rows, TileKernel::streamed] += the same sum for one or two rows, with b read in place: column c starts at b +
/// c * b_column bytes, with contiguous k. Pairs of bf16 in a are consecutive, those of two rows interleaved. `depth` is
/// a multiple of kStreamedDepth. Memory `ahead` bytes further is prefetched, since it is read next.
inline constexpr int kStreamedDepth = 32;
struct StreamCall {
  std::int64_t depth;
  const void* a;
  std::int64_t a_row, a_group;
  const std::byte* b;
  std::int64_t b_column, ahead;
  float* tile;
  std::int64_t tile_row;
};
using StreamTile = void (*)(const StreamCall&);

/// b in 4-bit codes, whose values are bf16(map * scale of the block): blocks of `blocksize` codes, `depth` a multiple
/// of it, scale (column, block) at scales[column * blocks_per_column + block]. No value may be denormal.
inline constexpr float kLeastNormal = 0x1p-126F;
struct StreamCall4 {
  StreamCall in;
  const float *scales, *map;
  std::int64_t blocks_per_column, blocksize;
};
using StreamTile4 = void (*)(const StreamCall4&);

/// b in 8-bit codes, whose values are bf16(code * scale of the column * kUnit8). Scales must be finite, and zero or at
/// least kLeastStreamedScale in magnitude.
inline constexpr float kLeastStreamedScale = 1e-28F;
struct StreamCall8 {
  StreamCall in;
  const float* scales;
};
using StreamTile8 = void (*)(const StreamCall8&);

/// A set of functions for tiles. run[h][v - 1] computes heights[h] rows of v * lanes columns; an element's sum is the
/// same in tiles of all sizes.
struct TileKernel {
  static constexpr int kHeights = 4;

  int mr, nr, lanes;  // nr is 1 to 3 times lanes; mr is the last of the heights
  int k_group;
  int k_block;  // maximum size of the blocks into which a sum over k is divided
  int strip;    // columns per task; a strip of k_block depth takes a part of the level-2 cache
  int heights[kHeights];
  MultiplyTile run[kHeights][3];
  int streamed;                              // columns streamed at a time: 16 or 32
  StreamTile stream_f32[2], stream_bf16[2];  // for b in f32 or bf16, with one row and with two; may be null
  StreamTile4 stream4[2];
  StreamTile8 stream8[2];
};

extern const TileKernel kTileF32;                      ///< 6 x 16, with the lanes of kernels/cpu/simd.h
extern const TileKernel kTileAvx512, kTileAvx512Bf16;  ///< x86-64 only
extern const TileKernel kTileNeonBf16;                 ///< aarch64 only

}  // namespace qtrain::ops
