#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

/// The dynamic 8-bit type of Dettmers (8-Bit Approximations for Parallelism in Deep Learning, 2015), as bitsandbytes
/// builds it: 256 values in [-1, 1] or [0, 1], in ascending order. Everything here runs on the host and in kernels.
namespace qtrain {

enum class Signedness : std::uint8_t { with_sign, without_sign };

/// For i in 0..6: the midpoints of linspace(0.1, 1, items + 1) in f32 times 10^(i-6), where items is 2^i with signs and
/// 2^(i+1) without; then 0 and 1. Bitwise equal to torch's result on CPUs with AVX2 or AVX-512. Maps from other
/// machines differ by up to 2e-7, so a file's codes are decoded with the file's own map.
constexpr std::array<float, 256> make_dynamic_map(Signedness signedness) {
  constexpr float kPowers[] = {1e-6F, 1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F, 1.0F};
  std::array<float, 256> map{};
  std::size_t n = 0;
  for (int i = 0; i < 7; ++i) {
    const int items = signedness == Signedness::with_sign ? 1 << i : 2 << i;
    const float step = (1.0F - 0.1F) / static_cast<float>(items);
    // Computed from the nearer end; the product and sum are exact in f64 and rounded once.
    const auto boundary = [&](int k) {
      return static_cast<float>(k < (items + 1) / 2 ? double{0.1F} + double{step} * k
                                                    : 1.0 - double{step} * (items - k));
    };
    for (int k = 0; k < items; ++k) {
      const float mean = kPowers[i] * ((boundary(k) + boundary(k + 1)) / 2.0F);
      map[n++] = mean;
      if (signedness == Signedness::with_sign) map[n++] = -mean;
    }
  }
  map[n++] = 0.0F;
  map[n++] = 1.0F;
  std::sort(map.begin(), map.end());
  return map;
}

inline constexpr std::array<float, 256> kSignedDynamicMap = make_dynamic_map(Signedness::with_sign);
inline constexpr std::array<float, 256> kUnsignedDynamicMap = make_dynamic_map(Signedness::without_sign);
constexpr const std::array<float, 256>& dynamic_map(Signedness signedness) {
  return signedness == Signedness::with_sign ? kSignedDynamicMap : kUnsignedDynamicMap;
}

/// The index of the value nearest to x in an ascending map of 256 values, the lower index on a tie: the number of
/// midpoints below x. 0 for NaN.
constexpr int nearest_code(const float* map, float x) {
  int code = 0;
  for (int step = 128; step > 0; step /= 2)
    if ((map[code + step - 1] + map[code + step]) / 2.0F < x) code += step;
  return code;
}

/// Rounds x in [-1, 1] to a grid of 65536 points; NaN becomes -1. The CPU library of bitsandbytes looks up codes in a
/// table of that size: its code for x is nearest_code(map, on_grid(x)). Grid points are 3e-5 apart, so smaller values
/// are lost. Scales of a 4-bit matrix have no such values; second moments do.
constexpr float on_grid(float x) {
  if (!(x >= -1.0F)) return -1.0F;
  const float half = ((x < 1.0F ? x : 1.0F) + 1.0F) * 0.5F;
  // Rounded once, as with a fused multiply-add: the product and sum are exact in f64.
  const auto rounded_up = static_cast<float>(static_cast<double>(half) * 65535.0 + 0.5);
  const auto index = static_cast<int>(rounded_up);
  return static_cast<float>(2 * index) / 65535.0F - 1.0F;
}

}  // namespace qtrain
