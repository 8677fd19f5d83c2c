#pragma once
#include "core/rng.h"
#include "kernels/cpu/simd.h"

namespace qtrain::simd {

/// Two chains of eight counters each, because one alone waits for its multiplications.
inline constexpr int kPhiloxLanes = 8, kPhiloxChains = 2, kPhiloxWords = 4 * kPhiloxLanes * kPhiloxChains;

/// The four words of eight counters.
struct PhiloxState {
  __m256i c0, c1, c2, c3;
};
struct Products {
  __m256i high, low;
};
/// The 64-bit products of each 32-bit lane with a constant, as high and low halves.
inline Products multiply_wide(__m256i x, std::uint32_t factor) {
  const __m256i f = _mm256_set1_epi32(static_cast<int>(factor));
  const __m256i even = _mm256_mul_epu32(x, f), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), f);
  return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa),
          _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa)};
}
inline PhiloxState philox_round(const PhiloxState& s, __m256i k0, __m256i k1) {
  const Products p0 = multiply_wide(s.c0, 0xD2511F53u), p1 = multiply_wide(s.c2, 0xCD9E8D57u);
  return {_mm256_xor_si256(_mm256_xor_si256(p1.high, s.c1), k0), p1.low,
          _mm256_xor_si256(_mm256_xor_si256(p0.high, s.c3), k1), p0.low};
}
/// Four words of eight counters become eight groups of four.
inline void store_groups(const PhiloxState& s, std::uint32_t* words) {
  const __m256i a = _mm256_unpacklo_epi32(s.c0, s.c1), b = _mm256_unpackhi_epi32(s.c0, s.c1);
  const __m256i c = _mm256_unpacklo_epi32(s.c2, s.c3), d = _mm256_unpackhi_epi32(s.c2, s.c3);
  const __m256i g0 = _mm256_unpacklo_epi64(a, c), g1 = _mm256_unpackhi_epi64(a, c);
  const __m256i g2 = _mm256_unpacklo_epi64(b, d), g3 = _mm256_unpackhi_epi64(b, d);
  auto* to = reinterpret_cast<__m256i*>(words);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(g0, g1, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(g2, g3, 0x20));
  _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(g0, g1, 0x31));
  _mm256_storeu_si256(to + 3, _mm256_permute2x128_si256(g2, g3, 0x31));
}

/// philox(key, stream, counter) and the following ones, one behind the other: kPhiloxWords words. counter is a multiple
/// of 16.
inline void philox_lanes(std::uint64_t key, std::uint64_t stream, std::uint64_t counter, std::uint32_t* words) {
  const auto all = [](std::uint64_t x) { return _mm256_set1_epi32(static_cast<int>(static_cast<std::uint32_t>(x))); };
  const __m256i low = _mm256_or_si256(all(counter), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  PhiloxState a{low, all(counter >> 32), all(stream), all(stream >> 32)}, b = a;
  b.c0 = _mm256_or_si256(low, _mm256_set1_epi32(kPhiloxLanes));
  __m256i k0 = all(key), k1 = all(key >> 32);
  for (int round = 0; round < 10; ++round) {
    a = philox_round(a, k0, k1);
    b = philox_round(b, k0, k1);
    k0 = _mm256_add_epi32(k0, all(0x9E3779B9u));
    k1 = _mm256_add_epi32(k1, all(0xBB67AE85u));
  }
  store_groups(a, words);
  store_groups(b, words + 4 * kPhiloxLanes);
}

/// keep[i] = uniform(words[i]) >= p ? 1 : 0, for kPhiloxWords words.
inline void keep_lanes(const std::uint32_t* words, float p, float* keep) {
  for (int i = 0; i < kPhiloxWords; i += kPhiloxLanes) {
    const __m256i bits = _mm256_srli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i)), 8);
    const Vec<float> u = _mm256_mul_ps(_mm256_cvtepi32_ps(bits), _mm256_set1_ps(0x1p-24F));
    const __m256 kept = _mm256_cmp_ps(u, _mm256_set1_ps(p), _CMP_GE_OQ);
    _mm256_storeu_ps(keep + i, _mm256_and_ps(kept, _mm256_set1_ps(1)));
  }
}

}  // namespace qtrain::simd
