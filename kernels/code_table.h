#pragma once
#include <array>
#include <cstdint>

#include "core/tensor.h"

namespace qtrain::ops {

/// Values of a block that have one scale.
inline constexpr std::int64_t kCodeBlock = 256;

/// A map from 8-bit codes to values in [-1, 1] in ascending order, with what finds the nearest code of a value at
/// once: its sign and leading bits name a bucket, and a bucket has at most two codes.
struct alignas(16) CodeTable {
  static constexpr int kLeadingBits = 16;                             ///< sign, exponent and 7 bits of the mantissa
  static constexpr std::int32_t kLowest = (127 - 23) << 7;            ///< of magnitudes below 2^-23 * (1 + 2^-7)
  static constexpr std::int32_t kBuckets = (127 << 7) - kLowest + 1;  ///< of one sign, up to 1

  float values[256];
  float limits[256];  ///< midpoints: a larger value belongs to the next code (see nearest_code)
  std::uint8_t
      first[(2 * kBuckets + 15) / 16 * 16];  ///< the lowest code of a bucket; negative values behind the others
};

/// Of values in ascending order; an internal error if a bucket would have more than two.
CodeTable make_code_table(const std::array<float, 256>& values);

/// A part of an optimizer's state in 8 bits: codes u8 [n] and scales f32 [ceil(n / kCodeBlock)]. Each block is divided
/// by its largest magnitude before it is coded. `table`: the bytes of a CodeTable.
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
