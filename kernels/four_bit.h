#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace qtrain {

/// 4-bit types: sixteen values in [-1, 1].
enum class FourBit : std::uint8_t { nf4, fp4 };

/// The value of each code. NF4: quantiles of the normal distribution, ascending. FP4: sign, two bits of exponent, one
/// of fraction; codes 0 and 8 are both 0.
inline constexpr std::array<float, 16> kNf4Map = {-1.0F,
                                                  -0.6961928009986877F,
                                                  -0.5250730514526367F,
                                                  -0.39491748809814453F,
                                                  -0.28444138169288635F,
                                                  -0.18477343022823334F,
                                                  -0.09105003625154495F,
                                                  0.0F,
                                                  0.07958029955625534F,
                                                  0.16093020141124725F,
                                                  0.24611230194568634F,
                                                  0.33791524171829224F,
                                                  0.44070982933044434F,
                                                  0.5626170039176941F,
                                                  0.7229568362236023F,
                                                  1.0F};
inline constexpr std::array<float, 16> kFp4Map = {
    0.0F, 0.0625F / 12,  8.0F / 12,  1.0F,  4.0F / 12,  6.0F / 12,  2.0F / 12,  3.0F / 12,
    0.0F, -0.0625F / 12, -8.0F / 12, -1.0F, -4.0F / 12, -6.0F / 12, -2.0F / 12, -3.0F / 12};
constexpr const std::array<float, 16>& map_of(FourBit type) {
  return type == FourBit::nf4 ? kNf4Map : kFp4Map;
}

/// Lookup for encoding: the number of `bounds` (midpoints between neighboring values, ascending) below a value is its
/// rank among the ascending values, and `order` holds the code of each rank.
struct FourBitOrder {
  std::array<float, 15> bounds;
  std::array<std::uint8_t, 16> order;
};
constexpr FourBitOrder order_of(FourBit type) {
  const std::array<float, 16>& map = map_of(type);
  FourBitOrder o{};
  for (std::size_t i = 0; i < 16; ++i) {  // equal values keep the order of their codes
    std::size_t at = i;
    for (; at > 0 && map[o.order[at - 1]] > map[i]; --at) o.order[at] = o.order[at - 1];
    o.order[at] = static_cast<std::uint8_t>(i);
  }
  for (std::size_t i = 0; i < 15; ++i) o.bounds[i] = (map[o.order[i]] + map[o.order[i + 1]]) / 2;
  return o;
}

}  // namespace qtrain
