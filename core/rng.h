#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace qtrain {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four random words for a
/// (key, stream, counter). It gives the same numbers on every device, in any order, with no state to save.
constexpr std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t stream, std::uint64_t counter) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                                 static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0], p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// The stream of a name (FNV-1a): it only has to distinguish the parameters of one model.
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

/// Uniform in [0, 1) with 24 bits.
constexpr float uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// Two independent standard normal values from two words (Box-Muller).
inline std::array<double, 2> normal_pair(std::uint32_t a, std::uint32_t b) {
  const double u = (a + 1.0) * 0x1p-32, angle = 2 * std::numbers::pi * b * 0x1p-32;
  const double radius = std::sqrt(-2 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace qtrain
