#pragma once
#include <bit>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/quantize.h"

/// Access to 4-bit blocks in kernels.
namespace qtrain {

struct MapOfFour {
  float values[16];
};

/// ops::Blocks4 as a kernel parameter.
struct FourBitParts {
  const std::uint8_t *codes, *absmax_codes;  ///< absmax_codes is null if scales are not nested
  const float *absmax, *map, *nested_map, *offset;
  int block_bits, nested_bits;  ///< log2 of the block sizes

  explicit FourBitParts(const ops::Blocks4& w)
      : codes(w.codes.as<std::uint8_t>()),
        absmax_codes(w.nested() ? w.absmax.as<std::uint8_t>() : nullptr),
        absmax(w.nested() ? w.nested_absmax.as<float>() : w.absmax.as<float>()),
        map(w.map.as<float>()),
        nested_map(w.nested() ? w.nested_map.as<float>() : nullptr),
        offset(w.nested() ? w.offset.as<float>() : nullptr),
        block_bits(std::countr_zero(static_cast<unsigned>(w.blocksize))),
        nested_bits(std::countr_zero(static_cast<unsigned>(w.nested_blocksize))) {}

  /// What memory holds of an element's scale. Loading it ahead lets the loads of several elements overlap.
  struct StoredScale {
    float absmax = 0;
    unsigned code = 0;  ///< of a nested scale
  };
  __device__ __forceinline__ StoredScale stored_scale(std::int64_t i) const {
    const std::int64_t block = i >> block_bits;
    if (!absmax_codes) return {absmax[block]};
    return {absmax[block >> nested_bits], absmax_codes[block]};
  }
  __device__ __forceinline__ float scale_of(const StoredScale& s) const {
    return absmax_codes ? rounded_product(nested_map[s.code], s.absmax) + *offset : s.absmax;
  }
  /// The scale of element i.
  __device__ __forceinline__ float scale(std::int64_t i) const { return scale_of(stored_scale(i)); }
  __device__ __forceinline__ unsigned code(std::int64_t i) const {
    return i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
  }
};

/// Loads the map to shared memory; all threads of the block must call it together.
__device__ __forceinline__ const float* load_map(const FourBitParts& w) {
  auto& map = shared_memory<MapOfFour>();
  if (threadIdx.x < 16) map.values[threadIdx.x] = w.map[threadIdx.x];
  __syncthreads();
  return map.values;
}

/// Loads the codes of N elements; for N = 8, p must be a multiple of 4.
template <int N>
__device__ __forceinline__ Pack<std::uint8_t, N / 2> load_codes(const std::uint8_t* p) {
  if constexpr (N == 2)
    return {{*p}};
  else
    return load_pack<N / 2>(p);
}

struct Most {
  __device__ __forceinline__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a > b ? a : b; }
};

}  // namespace qtrain
