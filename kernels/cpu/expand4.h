#pragma once
#include <cstdint>

// Only plain declarations: this header is compiled for several instruction sets, like gemm_tile.h.
namespace qtrain {
enum class DType : std::uint8_t;
}
namespace qtrain::ops {

/// How results are stored.
enum class Stores : std::uint8_t {
  cached,
  streamed,  ///< bypassing the caches; addresses are multiples of 64
};

/// Whole blocks of 4-bit codes, expanded to y[0, blocks * blocksize).
struct WholeBlocks4 {
  const std::uint8_t* codes;
  const float *scales, *map;  ///< [blocks], [16]
  std::int64_t blocks, blocksize;
  void* y;
};
using ExpandBlocks4 = void (*)(const WholeBlocks4&);

/// Implementations for the widest vector extension, indexed by Stores, for y of this type; null if the generic code is
/// used.
const ExpandBlocks4* whole_blocks4(DType y);

}  // namespace qtrain::ops
