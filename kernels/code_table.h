#pragma once
#include <array>
#include <cstdint>

#include "core/tensor.h"

namespace qtrain::ops {

/// Number of values that share one scale.
inline constexpr std::int64_t kCodeBlock = 256;

/// A map from 8-bit codes to values in [-1, 1] in ascending order, with a lookup table for encoding: the sign and
/// leading bits of a value select a bucket, and each bucket spans at most two codes.
struct alignas(16) CodeTable {
  static constexpr int kLeadingBits = 16;                   ///< sign, exponent and 7 bits of the mantissa
  static constexpr std::int32_t kLowest = (127 - 23) << 7;  ///< the bucket of all magnitudes below 2^-23 * (1 + 2^-7)
  static constexpr std::int32_t kBuckets = (127 << 7) - kLowest + 1;  ///< buckets per sign, up to magnitude 1

  float values[256];
  float limits[256];  ///< midpoints: a value above limits[c] has a code above c (see nearest_code)
  std::uint8_t
      first[(2 * kBuckets + 15) / 16 * 16];  ///< the lowest code of each bucket; buckets of negative values come last
};

/// `values` ascending. Throws an internal error if a bucket would span more than two codes.
CodeTable make_code_table(const std::array<float, 256>& values);

/// Optimizer state in 8 bits: codes u8 [n] and scales absmax f32 [ceil(n / kCodeBlock)]. Each block is divided by its
/// largest magnitude before it is encoded. `table` holds the bytes of a CodeTable.
struct CodedState {
  Tensor codes, absmax;
  ConstTensor table;
};

inline void check_coded(const CodedState& s, std::int64_t n) {
  check(s.codes.numel() == n && s.absmax.numel() == (n + kCodeBlock - 1) / kCodeBlock,
        "coded state: a code per value and a scale per block");
  check(s.codes.dtype == DType::u8 && s.absmax.dtype == DType::f32, "coded state: codes are u8, scales f32");
  check(s.table.bytes() == sizeof(CodeTable), "coded state: the table is a CodeTable");
}

}  // namespace qtrain::ops
