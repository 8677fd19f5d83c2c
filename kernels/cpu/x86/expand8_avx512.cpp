#include "kernels/cpu/x86/expand8_avx512.h"

#include <immintrin.h>

#include <cmath>

namespace qtrain::ops {
namespace {

__m512 sixteen(const std::int8_t* codes, __m512 scale) {
  const __m512i words = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  return _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(words), scale), _mm512_set1_ps(kUnit8));
}

void to_f32(const Row8& row, void* to) {
  const __m512 scale = _mm512_set1_ps(row.scale);
  auto* y = static_cast<float*>(to);
  for (std::int64_t i = 0; i < row.count; i += 16) _mm512_storeu_ps(y + i, sixteen(row.codes + i, scale));
}

/// Rounds to nearest even bf16, in the upper half of each word.
__m512i rounded(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
}
/// Likewise; NaN stays NaN.
__m512i rounded_nan(__m512 v) {
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(rounded(v), nan, _mm512_castps_si512(v), _mm512_set1_epi32(0x400000));
}

template <auto Round>
void round_row(const Row8& row, std::uint16_t* y) {
  alignas(64) std::uint16_t places[32];  // indices of the upper halves of two vectors
  for (int i = 0; i < 32; ++i) places[i] = static_cast<std::uint16_t>(2 * i + 1);
  const __m512i upper = _mm512_load_si512(places);
  const __m512 scale = _mm512_set1_ps(row.scale);
  const std::int8_t* codes = row.codes;
  for (std::int64_t i = 0, count = row.count; i < count; i += 32) {
    const __m512i low = Round(sixteen(codes + i, scale)), high = Round(sixteen(codes + i + 16, scale));
    _mm512_storeu_si512(y + i, _mm512_permutex2var_epi16(low, upper, high));
  }
}

void to_bf16(const Row8& row, void* to) {
  auto* y = static_cast<std::uint16_t*>(to);
  if (std::isfinite(row.scale)) return round_row<rounded>(row, y);
  round_row<rounded_nan>(row, y);  // 0 times infinity is NaN too
}

}  // namespace

const ExpandRow8 kExpandRow8F32Avx512 = to_f32, kExpandRow8Bf16Avx512 = to_bf16;

}  // namespace qtrain::ops
