#pragma once
#include <target/tensor_map.h>

#include "kernels/cuda/attention_wgmma.cuh"

/// Tiles that one thread copies for the others: boxes of tensors, which the copying unit stores in the 128-byte swizzle
/// of wgmma. A block has a warpgroup for that thread after the two that multiply.
namespace qtrain::ops {

inline constexpr int kTmaThreads = kBlockThreads + kWarpgroupThreads, kBlockWarps = kBlockThreads / kWarp;
/// Registers of the threads that copy and of those that compute. A block starts with 168 for each of its 384 threads.
inline constexpr int kCopyRegisters = 24, kComputeRegisters = 240;
static_assert(kCopyRegisters + kWarpgroups * kComputeRegisters == 3 * 168);

/// Arrives at a barrier when all lanes of the warp are here.
__device__ __forceinline__ void arrive_as_warp(ptx::Mbarrier& barrier) {
  __syncwarp();
  if (lane_id() == 0) ptx::arrive(barrier);
}

/// Passes a tile from the thread that fills it to the warps that read it, and back. Uses are counted from 0, in
/// unsigned numbers, whose remainders take one instruction.
struct TileGate {
  ptx::Mbarrier full, empty;

  /// For so many warps that read the tile, and arrivals besides the copied bytes that fill it.
  __device__ __forceinline__ void open(int readers = kBlockWarps, int arrivals = 1) {
    ptx::init(full, static_cast<unsigned>(arrivals));
    ptx::init(empty, static_cast<unsigned>(readers));
  }
  /// Waits until the tile has been filled for this use.
  __device__ __forceinline__ void wait(unsigned use) { ptx::wait(full, use % 2); }
  /// Called by each warp that has read the tile.
  __device__ __forceinline__ void release() { arrive_as_warp(empty); }
};

/// Starts copying the rows of a head from `row` on to a tile. Rows beyond the last become zero.
template <class T, int Rows, int Width>
__device__ __forceinline__ void copy_tile(SwizzledTile<T, Rows, Width>& tile, TileGate& gate,
                                          const target::TensorMap& map, int head, int row) {
#pragma unroll
  for (int b = 0; b < tile.kBlocks; ++b) ptx::copy_box(tile.v[b], map, {b * kSwizzledWidth, head, row}, gate.full);
}
/// Likewise once the previous use of the tile is over, with a phase of the gate for its bytes.
template <class T, int Rows, int Width>
__device__ __forceinline__ void fill(SwizzledTile<T, Rows, Width>& tile, TileGate& gate, unsigned use,
                                     const target::TensorMap& map, int head, int row) {
  ptx::wait(gate.empty, (use + 1) % 2);
  ptx::arrive_and_expect(gate.full, sizeof tile.v);
  copy_tile(tile, gate, map, head, row);
}

struct TokenShape {
  std::int64_t tokens;
  int heads, width;
};
/// For boxes of `rows` tokens of a tensor [tokens, heads, width] of 16-bit elements.
inline target::TensorMap map_of(const void* data, const TokenShape& shape, int rows) {
  const std::int64_t token_bytes = std::int64_t{shape.heads} * shape.width * 2;
  return target::tensor_map_of({.data = data,
                                .extents = {shape.width, shape.heads, shape.tokens},
                                .strides = {shape.width * 2, token_bytes},
                                .box = {kSwizzledWidth, 1, rows}});
}

}  // namespace qtrain::ops
