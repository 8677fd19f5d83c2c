#pragma once
#include <immintrin.h>

namespace qtrain::ops {

/// Transposes an 8 x 8 block of 32-bit words. Always inlined: this header is compiled for several instruction sets.
template <class Words>
[[gnu::always_inline]] static inline void transpose_words(Words (&r)[8]) {
  __m256i t[8], u[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32((__m256i)r[i], (__m256i)r[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32((__m256i)r[i], (__m256i)r[i + 1]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 8
    for (int j = 0; j < 2; ++j) {
      u[i + 2 * j] = _mm256_unpacklo_epi64(t[i + j], t[i + 2 + j]);
      u[i + 2 * j + 1] = _mm256_unpackhi_epi64(t[i + j], t[i + 2 + j]);
    }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    r[i] = (Words)_mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
    r[i + 4] = (Words)_mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
  }
}

}  // namespace qtrain::ops
