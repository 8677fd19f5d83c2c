#pragma once
#include "kernels/cuda/attention_mma.cuh"

/// Attention on the tensor cores of sm_90a (wgmma), for heads of 64 and 128 elements. A block has two warpgroups;
/// warpgroup w holds rows 64 w to 64 (w + 1) of its tile, in accumulators float c[N][4] (kernels/cuda/native/target/
/// wgmma.cuh). Their columns are laid out as in attention_mma.cuh with M = 1.
namespace qtrain::ops {

inline constexpr int kWarpgroups = 2, kWarpgroupThreads = 4 * kWarp, kWarpgroupRows = 64;
inline constexpr int kBlockThreads = kWarpgroups * kWarpgroupThreads, kBlockRows = kWarpgroups * kWarpgroupRows;
inline constexpr int kSwizzledBytes = 128, kSwizzledWidth = 64, kAtomRows = 8, kAtomBytes = kAtomRows * kSwizzledBytes;

/// Rows of Width 16-bit elements in the 128-byte swizzle of wgmma: blocks of 64 columns, in which chunk c (16 bytes) of
/// a row is stored at c ^ (row % 8).
template <class T, int Rows, int Width>
struct alignas(kAtomBytes) SwizzledTile {
  static constexpr int kBlocks = Width / kSwizzledWidth, kBlockBytes = Rows * kSwizzledBytes;
  T v[kBlocks][Rows][kSwizzledWidth];
};

/// Starts copying rows `first`, `first` + 1, ... to a tile. Rows out of range become zero.
template <class T, int Rows, int Width>
__device__ __forceinline__ void copy_rows(SwizzledTile<T, Rows, Width>& tile, const HeadRows<T>& from, int first) {
  constexpr int kAcross = kSwizzledWidth / kChunk, kStep = kBlockThreads / kAcross;
  static_assert(Rows % kStep == 0 && kStep % kAtomRows == 0);
  const int chunk = static_cast<int>(threadIdx.x) % kAcross, row0 = static_cast<int>(threadIdx.x) / kAcross;
  const int place = (chunk ^ row0 % kAtomRows) * kChunk;
  const T* source = from.data + (first + row0) * from.stride + chunk * kChunk;
#pragma unroll
  for (int r = 0; r < Rows; r += kStep) {
    const bool there = first + row0 + r < from.end;
#pragma unroll
    for (int b = 0; b < tile.kBlocks; ++b)
      ptx::cp_async<16>(&tile.v[b][row0 + r][place], source + b * kSwizzledWidth, there ? 16 : 0);
    source += kStep * from.stride;
  }
}
/// Waits until all copied data can be multiplied.
__device__ __forceinline__ void wait_for_copies() {
  ptx::cp_async_wait<0>();
  ptx::fence_proxy_async();
  __syncthreads();
}

/// The descriptor of a tile (PTX manual, "Matrix Descriptor Format"): the address, the offsets to the next block of 64
/// columns and to the next 8 rows, and the mode of 128-byte swizzle.
template <class T, int Rows, int Width>
__device__ __forceinline__ std::uint64_t descriptor_of(const SwizzledTile<T, Rows, Width>& tile) {
  constexpr std::uint64_t kMode = 1;
  return std::uint64_t{ptx::shared_address(&tile) >> 4} | std::uint64_t{tile.kBlockBytes >> 4} << 16 |
         std::uint64_t{kAtomBytes >> 4} << 32 | kMode << 62;
}
/// The descriptor of the data `bytes` further on.
__device__ __forceinline__ std::uint64_t moved(std::uint64_t descriptor, int bytes) {
  return descriptor + static_cast<unsigned>(bytes >> 4);
}

/// The thread's warpgroup.
__device__ __forceinline__ int warpgroup_id() {
  return static_cast<int>(threadIdx.x) / kWarpgroupThreads;
}
/// Starts c = a b^T for the warpgroup's rows of a, as a separate group of products.
template <class T, int N, int RowsA, int RowsB, int Width>
__device__ __forceinline__ void start_rows(float (&c)[N][4], const SwizzledTile<T, RowsA, Width>& a,
                                           const SwizzledTile<T, RowsB, Width>& b, int group = warpgroup_id()) {
  static_assert(8 * N == RowsB);
  const std::uint64_t rows = moved(descriptor_of(a), group * kWarpgroupRows * kSwizzledBytes),
                      columns = descriptor_of(b);
#pragma unroll
  for (int i = 0; i < Width / 16; ++i) {
    const int at = i % 4 * 32, block = i / 4;
    const std::uint64_t ai = moved(rows, block * a.kBlockBytes + at), bi = moved(columns, block * b.kBlockBytes + at);
    if (i == 0)
      ptx::wgmma<T, ptx::Major::k, ptx::Sum::starts>(c, ai, bi);
    else
      ptx::wgmma<T, ptx::Major::k, ptx::Sum::adds>(c, ai, bi);
  }
  ptx::wgmma_commit();
}

/// Starts c += p b with p in fragments (see fragments_of), as a separate group of products.
template <class T, int K, int N, int Rows, int Width>
__device__ __forceinline__ void start_columns(float (&c)[N][4], std::uint32_t (&p)[K][4],
                                              const SwizzledTile<T, Rows, Width>& b) {
  static_assert(8 * N == Width && 16 * K == Rows);
  const std::uint64_t rows = descriptor_of(b);
#pragma unroll
  for (int i = 0; i < K; ++i) ptx::wgmma<T, ptx::Major::mn, ptx::Sum::adds>(c, p[i], moved(rows, i * 2 * kAtomBytes));
  ptx::wgmma_commit();
}

/// Starts c += a^T b for one block of 64 columns of b, as a separate group of products.
template <class T, int Rows, int Width>
__device__ __forceinline__ void start_transposed(float (&c)[8][4], const SwizzledTile<T, Rows, kSwizzledWidth>& a,
                                                 const SwizzledTile<T, Rows, Width>& b, int block) {
  const std::uint64_t rows = descriptor_of(a), columns = moved(descriptor_of(b), block * b.kBlockBytes);
#pragma unroll
  for (int i = 0; i < Rows / 16; ++i)
    ptx::wgmma<T, ptx::Major::mn, ptx::Sum::adds, ptx::Major::mn>(c, moved(rows, i * 2 * kAtomBytes),
                                                                  moved(columns, i * 2 * kAtomBytes));
  ptx::wgmma_commit();
}

}  // namespace qtrain::ops
