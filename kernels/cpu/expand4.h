#pragma once
#include <cstdint>

// Only plain declarations here: this header is compiled for several instruction sets, as gemm_tile.h.
namespace qtrain {
enum class DType : std::uint8_t;
}
namespace qtrain::ops {

/// How results are written.
enum class Stores : std::uint8_t {
  cached,
  streamed,  ///< past the caches; addresses are multiples of 64
};

/// Whole blocks of 4-bit codes: y[0, blocks * blocksize).
struct WholeBlocks4 {
  const std::uint8_t* codes;
  const float *scales, *map;  ///< [blocks], [16]
  std::int64_t blocks, blocksize;
  void* y;
};
using ExpandBlocks4 = void (*)(const WholeBlocks4&);

/// The widest units' own, by Stores, for y of a type: null where those of all kernels do it.
const ExpandBlocks4* whole_blocks4(DType y);

}  // namespace qtrain::ops
