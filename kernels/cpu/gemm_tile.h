#pragma once
#include <cstdint>

// Only plain declarations here: this header is compiled for several instruction sets, and an inline function of it
// could be linked from the widest of them into the others.
namespace qtrain::ops {

/// A product of two packed panels: tile [mr, nr] (row-major f32) = or += sum over k of a[k, 0..mr) x b[k, 0..nr).
/// Panels hold, for each group of `k_group` consecutive k, `k_group` values of each of their mr (nr) lanes in turn:
/// f32 with k_group 1, bf16 pairs with k_group 2.
struct TileCall {
  std::int64_t groups;
  const void *a, *b;
  float* tile;
  bool add;
};

/// One way to multiply tiles. `run[v - 1]` computes the first v * lanes columns of a panel that is v * lanes wide; the
/// tile's rows stay nr apart.
struct TileKernel {
  int mr, nr, lanes;  // nr is 1 to 3 times lanes
  int k_group;
  int k_block;  // a sum over k is cut into pieces of at most this length
  void (*run[3])(const TileCall&);
};

extern const TileKernel kTileAvx2, kTileAvx512, kTileAvx512Bf16;

}  // namespace qtrain::ops
