#pragma once
#include <cstdint>

// Only plain declarations here: this header is compiled for several instruction sets, and an inline function of it
// could be linked from the widest of them into the others.
namespace qtrain::ops {

/// tile [mr, nr] (row-major f32) = or += sum over k of a[0..mr, k] x b[k, 0..nr).
/// b is a packed panel: for each group of `k_group` consecutive k, k_group values of each of its columns in turn, as
/// f32 (k_group 1) or bf16 pairs (k_group 2). a holds 32-bit words of the same kind, one per row and group of k, at
/// a[row * a_row + group * a_group]: a packed panel, or a row-major f32 matrix as it lies. Only `rows` rows of a are
/// read; the rest of the tile is undefined.
struct TileCall {
  std::int64_t groups;
  const void* a;
  std::int64_t a_row, a_group, rows;
  const void* b;
  float* tile;
  bool add;
};

/// Which of the two panels stays in the level-1 cache while the other changes.
enum class Resident : unsigned char { rows, columns };

/// One way to multiply tiles. run[v - 1] takes a panel of v * lanes columns; the tile's rows are nr apart for each.
struct TileKernel {
  int mr, nr, lanes;  // nr is 1 to 3 times lanes
  int k_group;
  int k_block;  // a sum over k is cut into pieces of at most this length
  Resident resident;
  void (*run[3])(const TileCall&);
};

extern const TileKernel kTileAvx2, kTileAvx512, kTileAvx512Bf16;

}  // namespace qtrain::ops
