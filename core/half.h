#pragma once
#include <bit>
#include <cstdint>

namespace qtrain {

/// bfloat16: the upper half of an f32, rounded to nearest even.
struct Bf16 {
  std::uint16_t bits = 0;

  Bf16() = default;
  Bf16(float f) : bits(round(f)) {}  // NOLINT: numeric conversions are implicit, as for float
  operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }  // NOLINT

 private:
  static std::uint16_t round(float f) {
    const auto u = std::bit_cast<std::uint32_t>(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);  // NaN stays NaN
    return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

/// IEEE binary16, converted in software (compilers vectorize neither direction; used for files, not in loops).
struct F16 {
  std::uint16_t bits = 0;

  F16() = default;
  F16(float f) : bits(round(f)) {}  // NOLINT
  operator float() const {          // NOLINT
    const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
    const std::uint32_t exp = (bits >> 10) & 0x1fu, man = bits & 0x3ffu;
    if (exp == 31) return std::bit_cast<float>(sign | 0x7f800000u | man << 13);
    if (exp == 0) {
      const float v = static_cast<float>(man) * 0x1p-24f;
      return sign ? -v : v;
    }
    return std::bit_cast<float>(sign | (exp + 112u) << 23 | man << 13);
  }

 private:
  static std::uint16_t round(float f) {
    const auto u = std::bit_cast<std::uint32_t>(f);
    const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    const std::uint32_t mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return sign | 0x7e00u;
    if (mag >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
    if (mag < 0x38800000u) {                        // subnormal: let f32 addition round at 2^-24
      const float shifted = std::bit_cast<float>(mag) + 0.5f;
      return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    }
    const std::uint32_t rounded = mag + 0xfffu + ((mag >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
};

}  // namespace qtrain
