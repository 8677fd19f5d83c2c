#pragma once
#include <bit>
#include <cstdint>
#include <limits>

/// 8-bit floating-point numbers (Micikevicius et al. 2022, arXiv:2209.05433; OCP 8-bit Floating Point Specification).
/// The functions are constexpr, so that kernels can call them too.
namespace qtrain {

/// Sign, 4 bits of exponent and 3 of mantissa; no infinity, and one NaN of each sign.
struct E4m3 {
  static constexpr int kMantissa = 3, kBias = 7;
  static constexpr float kMax = 448;
  static constexpr bool kHasInfinity = false;
};
/// Sign, 5 bits of exponent and 2 of mantissa, with infinity and NaN as in IEEE formats.
struct E5m2 {
  static constexpr int kMantissa = 2, kBias = 15;
  static constexpr float kMax = 57344;
  static constexpr bool kHasInfinity = true;
};

/// Rounds to nearest, ties to even. Values out of range become the largest finite number; NaN stays NaN.
template <class F>
constexpr std::uint8_t encode_fp8(float x) {
  constexpr int kShift = 23 - F::kMantissa;
  constexpr float kLeastNormal = std::bit_cast<float>(std::uint32_t{128 - F::kBias} << 23);
  // The last bit of its mantissa is worth one step of the subnormal numbers, so adding it rounds to such a step.
  constexpr float kRounder = std::bit_cast<float>(std::uint32_t{128 - F::kBias + 23 - F::kMantissa} << 23);
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 24 & 0x80U, magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint8_t>(sign | 0x7fU);
  const float size = std::bit_cast<float>(magnitude) < F::kMax ? std::bit_cast<float>(magnitude) : F::kMax;
  if (size < kLeastNormal)
    return static_cast<std::uint8_t>(
        sign | (std::bit_cast<std::uint32_t>(size + kRounder) - std::bit_cast<std::uint32_t>(kRounder)));
  const auto exact = std::bit_cast<std::uint32_t>(size);
  const std::uint32_t rounded = exact + (1U << (kShift - 1)) - 1 + (exact >> kShift & 1U);
  return static_cast<std::uint8_t>(sign | ((rounded >> kShift) - (std::uint32_t{127 - F::kBias} << F::kMantissa)));
}

/// The exact value of a code.
template <class F>
constexpr float decode_fp8(std::uint8_t code) {
  constexpr int kExponents = 7 - F::kMantissa;
  constexpr float kLeast = std::bit_cast<float>(std::uint32_t{128 - F::kBias - F::kMantissa} << 23);
  const std::uint32_t exponent = code >> F::kMantissa & ((1U << kExponents) - 1);
  const std::uint32_t mantissa = code & ((1U << F::kMantissa) - 1);
  const bool top = exponent == (1U << kExponents) - 1;
  float size = exponent == 0
                   ? static_cast<float>(mantissa) * kLeast
                   : std::bit_cast<float>((exponent + 127 - F::kBias) << 23 | mantissa << (23 - F::kMantissa));
  if (F::kHasInfinity && top)
    size = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  if (!F::kHasInfinity && (code & 0x7fU) == 0x7fU) size = std::numeric_limits<float>::quiet_NaN();
  return code & 0x80U ? -size : size;
}

}  // namespace qtrain
