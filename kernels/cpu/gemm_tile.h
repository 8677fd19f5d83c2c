#pragma once
#include <cstdint>

// Only plain declarations here: this header is compiled for several instruction sets, and an inline function of it
// could be linked from the widest of them into the others.
namespace qtrain::ops {

/// tile [mr, columns] = or += sum over k of a[0..mr, k] x b[k, 0..columns), in f32; tile rows are `tile_row` apart.
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

/// One way to multiply tiles. run[v - 1] makes v * lanes columns.
struct TileKernel {
  int mr, nr, lanes;  // nr is 1 to 3 times lanes
  int k_group;
  int k_block;  // a sum over k is cut into pieces of at most this length
  int strip;    // columns a task packs: with k_block, a part of a level-2 cache
  void (*run[3])(const TileCall&);
};

extern const TileKernel kTileAvx2, kTileAvx512, kTileAvx512Bf16;

}  // namespace qtrain::ops
