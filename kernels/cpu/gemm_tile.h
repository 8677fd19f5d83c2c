#pragma once
#include <cstddef>
#include <cstdint>

// Only plain declarations here: this header is compiled for several instruction sets, and an inline function of it
// could be linked from the widest of them into the others.
namespace qtrain::ops {

/// tile [rows, columns] = or += sum over k of a[0..mr, k] x b[k, 0..columns), in f32; tile rows are `tile_row` apart.
/// The operands are 32-bit words, one per row (column) and group of `k_group` consecutive k: an f32 (k_group 1), or a
/// pair of bf16 (k_group 2) with the lower k in the low half. Word (row, group) of a is a[row * a_row + group *
/// a_group], word (group, column) of b is b[group * b_group + column]. Only `rows` rows of a are read, yet mr rows of
/// the tile are written, those beyond without meaning.
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

/// tile [rows, TileKernel::streamed] += the same sum for one or two rows, b read where it lies: column c begins at b +
/// c * b_column bytes, k running fastest. Pairs of bf16 in a follow each other, those of two rows side by side. `depth`
/// is a multiple of kStreamedDepth. What lies `ahead` bytes further is read next: it is fetched meanwhile.
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
/// of it, scale (column, block) at scales[column * blocks_per_column + block]. No value is denormal.
inline constexpr float kLeastNormal = 0x1p-126F;
struct StreamCall4 {
  StreamCall in;
  const float *scales, *map;
  std::int64_t blocks_per_column, blocksize;
};
using StreamTile4 = void (*)(const StreamCall4&);

/// b in 8-bit codes, whose values are bf16(code * scale of the column * kUnit8). Scales are finite, and zero or at
/// least kLeastStreamedScale in magnitude.
inline constexpr float kLeastStreamedScale = 1e-28F;
struct StreamCall8 {
  StreamCall in;
  const float* scales;
};
using StreamTile8 = void (*)(const StreamCall8&);

/// One way to multiply tiles. run[h][v - 1] makes heights[h] rows of v * lanes columns: an element's sum is the same in
/// a tile of any size.
struct TileKernel {
  static constexpr int kHeights = 4;

  int mr, nr, lanes;  // nr is 1 to 3 times lanes, mr the last of the heights
  int k_group;
  int k_block;  // a sum over k is cut into blocks of at most this size
  int strip;    // columns a task packs: with k_block, a part of a level-2 cache
  int heights[kHeights];
  MultiplyTile run[kHeights][3];
  int streamed;                              // columns that are streamed at a time: 16 or 32
  StreamTile stream_f32[2], stream_bf16[2];  // of b in f32 or bf16, for one row and for two, or null
  StreamTile4 stream4[2];
  StreamTile8 stream8[2];
};

extern const TileKernel kTileF32;                      ///< 6 x 16, of the lanes of kernels/cpu/simd.h
extern const TileKernel kTileAvx512, kTileAvx512Bf16;  ///< on x86-64
extern const TileKernel kTileNeonBf16;                 ///< on aarch64

}  // namespace qtrain::ops
