#pragma once
#include "core/rng.h"
#include "kernels/cpu/simd.h"

namespace qtrain::simd {

/// Two independent chains of eight counters each, to hide the latency of multiplications.
inline constexpr int kPhiloxLanes = 8, kPhiloxChains = 2, kPhiloxWords = 4 * kPhiloxLanes * kPhiloxChains;

/// The state of eight counters: four words each.
struct PhiloxState {
  Words c0, c1, c2, c3;
};
inline PhiloxState philox_round(const PhiloxState& s, Words k0, Words k1) {
  const Products p0 = multiply_wide(s.c0, 0xD2511F53u), p1 = multiply_wide(s.c2, 0xCD9E8D57u);
  return {p1.high ^ s.c1 ^ k0, p1.low, p0.high ^ s.c3 ^ k1, p0.low};
}

/// Writes kPhiloxWords consecutive words of philox(key, stream, counter), philox(key, stream, counter + 1), ...
/// `counter` is a multiple of 16.
inline void philox_lanes(std::uint64_t key, std::uint64_t stream, std::uint64_t counter, std::uint32_t* words) {
  constexpr std::uint32_t kFirst[kPhiloxLanes] = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto all = [](std::uint64_t x) { return all_words(static_cast<std::uint32_t>(x)); };
  const Words low = all(counter) | load_words(kFirst);
  PhiloxState a{low, all(counter >> 32), all(stream), all(stream >> 32)}, b = a;
  b.c0 = low | all(kPhiloxLanes);
  Words k0 = all(key), k1 = all(key >> 32);
  for (int round = 0; round < 10; ++round) {
    a = philox_round(a, k0, k1);
    b = philox_round(b, k0, k1);
    k0 = k0 + all(0x9E3779B9u);
    k1 = k1 + all(0xBB67AE85u);
  }
  store_groups(words, a.c0, a.c1, a.c2, a.c3);
  store_groups(words + 4 * kPhiloxLanes, b.c0, b.c1, b.c2, b.c3);
}

/// keep[i] = uniform(words[i]) >= p ? 1 : 0, for kPhiloxWords words.
inline void keep_lanes(const std::uint32_t* words, float p, float* keep) {
  for (int i = 0; i < kPhiloxWords; i += kPhiloxLanes) {
    const Vec<float> u = to_floats(load_words(words + i) >> 8) * 0x1p-24F;
    store_floats(keep + i, floats_of(at_least(u, broadcast(p)) & bits_of(broadcast(1.F))));
  }
}

}  // namespace qtrain::simd
