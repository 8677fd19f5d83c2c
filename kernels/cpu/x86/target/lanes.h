#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/x86/transpose.h"

/// Primitives of kernels/cpu/simd.h on x86-64: 256-bit vectors of AVX2 with FMA. kernels/cpu/arm/target/lanes.h has the
/// same names with the same results.
namespace qtrain::simd {

using ops::transpose_words;

template <class A>
struct VecOf {
  typedef A type __attribute__((vector_size(32)));  // NOLINT: vector_size wants a typedef
};
/// Eight floats or four doubles, with lane-wise arithmetic and comparisons.
template <class A>
using Vec = typename VecOf<A>::type;
/// Eight 32-bit words (Words), and eight 16-bit words (Halves).
using Words = VecOf<std::uint32_t>::type;
using Halves = __m128i;

template <class A>
inline Vec<A> broadcast(A x) {
  return x - Vec<A>{};
}
inline Words all_words(std::uint32_t x) {
  return (Words)_mm256_set1_epi32(static_cast<int>(x));
}

inline Words bits_of(Vec<float> v) {
  return (Words)v;
}
inline Vec<float> floats_of(Words w) {
  return (Vec<float>)w;
}
inline Vec<float> to_floats(Words whole) {
  return _mm256_cvtepi32_ps((__m256i)whole);
}
/// Rounds to the nearest integer, ties to even.
inline Vec<float> nearest(Vec<float> v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Words to_whole(Vec<float> v) {
  return (Words)_mm256_cvtps_epi32(v);
}

// Loads and stores.
inline Vec<float> load_floats(const float* p) {
  return _mm256_loadu_ps(p);
}
inline void store_floats(float* p, Vec<float> v) {
  _mm256_storeu_ps(p, v);
}
inline Vec<float> load_broadcast(const float* p) {
  return _mm256_broadcast_ss(p);
}
inline Vec<double> load_doubles(const double* p) {
  return _mm256_loadu_pd(p);
}
inline void store_doubles(double* p, Vec<double> v) {
  _mm256_storeu_pd(p, v);
}
inline Vec<float> load_narrowed(const double* p) {
  return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(p + 4)), _mm256_cvtpd_ps(_mm256_loadu_pd(p)));
}
inline void store_widened(double* p, Vec<float> v) {
  _mm256_storeu_pd(p, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
  _mm256_storeu_pd(p + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}
inline Words load_words(const void* p) {
  return (Words)_mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline void store_words(void* p, Words w) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), (__m256i)w);
}
inline Halves load_halves(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
inline void store_halves(void* p, Halves h) {
  _mm_storeu_si128(static_cast<__m128i*>(p), h);
}

/// All bits set in the first `n` of eight lanes.
inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vec<float> load_first(const float* p, int n) {
  return _mm256_maskload_ps(p, first_lanes(n));
}
inline void store_first(float* p, Vec<float> v, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), v);
}
inline void store_first(std::uint32_t* p, Words w, int n) {
  _mm256_maskstore_epi32(reinterpret_cast<int*>(p), first_lanes(n), (__m256i)w);
}

// Conversions between widths.
inline Words widen(Halves h) {
  return (Words)_mm256_cvtepu16_epi32(h);
}
/// For words below 2^16.
inline Halves narrow(Words w) {
  return _mm_packus_epi32(_mm256_castsi256_si128((__m256i)w), _mm256_extracti128_si256((__m256i)w, 1));
}
inline Words join(Halves low, Halves high) {
  return (Words)_mm256_set_m128i(high, low);
}
inline Words widen_bytes(const std::uint8_t* p) {
  return (Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
inline Words widen_bytes(const std::int8_t* p) {
  return (Words)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
/// For words below 256.
inline void store_bytes(std::uint8_t* p, Words w) {
  const __m128i halves = narrow(w);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(halves, halves));
}
inline Vec<float> from_f16(Halves h) {
  return _mm256_cvtph_ps(h);
}
inline Halves to_f16(Vec<float> v) {
  return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
}

// Comparisons of floats yield words with all bits set or none.
inline Words is_nan(Vec<float> v) {
  return (Words)_mm256_cmp_ps(v, v, _CMP_UNORD_Q);
}
inline Words above(Vec<float> a, Vec<float> b) {
  return (Words)_mm256_cmp_ps(a, b, _CMP_GT_OQ);
}
inline Words at_least(Vec<float> a, Vec<float> b) {
  return (Words)_mm256_cmp_ps(a, b, _CMP_GE_OQ);
}
inline Words below(Vec<float> a, Vec<float> b) {
  return (Words)_mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
/// Also true if either is NaN.
inline Words not_below(Vec<float> a, Vec<float> b) {
  return (Words)_mm256_cmp_ps(a, b, _CMP_NLT_UQ);
}
/// Compares words as signed integers.
inline Words above_signed(Words a, Words b) {
  return (Words)_mm256_cmpgt_epi32((__m256i)a, (__m256i)b);
}
inline Words max_signed(Words a, Words b) {
  return (Words)_mm256_max_epi32((__m256i)a, (__m256i)b);
}
inline Words min_signed(Words a, Words b) {
  return (Words)_mm256_min_epi32((__m256i)a, (__m256i)b);
}
/// Arithmetic shift: the sign bit is replicated.
template <int N>
inline Words shift_signed(Words w) {
  return (Words)_mm256_srai_epi32((__m256i)w, N);
}
inline Words choose(Words mask, Words yes, Words no) {
  return (Words)_mm256_blendv_epi8((__m256i)no, (__m256i)yes, (__m256i)mask);
}
inline Vec<float> choose(Words mask, Vec<float> yes, Vec<float> no) {
  return _mm256_blendv_ps(no, yes, (__m256)mask);
}
/// `mask` is the result of comparing two Vec.
template <class Mask, class V>
inline V select(Mask mask, V yes, V no) {
  return mask ? yes : no;
}

/// a * b + c, rounded once.
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
  return _mm256_fmadd_ps(a, b, c);
}
/// c - a * b
inline Vec<float> fnma(Vec<float> a, Vec<float> b, Vec<float> c) {
  return _mm256_fnmadd_ps(a, b, c);
}

/// Sum of the lanes, by folding halves onto each other.
inline float sum(Vec<float> v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}

/// Lane-wise; `b` if the two are unordered (a NaN in `b` is kept, one in `a` is dropped).
inline Vec<float> max(Vec<float> a, Vec<float> b) {
  return _mm256_max_ps(a, b);
}
inline Vec<double> max(Vec<double> a, Vec<double> b) {
  return _mm256_max_pd(a, b);
}
inline Vec<float> min(Vec<float> a, Vec<float> b) {
  return _mm256_min_ps(a, b);
}
inline Vec<float> sqrt(Vec<float> v) {
  return _mm256_sqrt_ps(v);
}
inline Vec<double> sqrt(Vec<double> v) {
  return _mm256_sqrt_pd(v);
}

// Table lookups.
inline Vec<float> look_up(const float* table, Words index) {
  return _mm256_i32gather_ps(table, (__m256i)index, sizeof(float));
}
/// May read three bytes past the end of the table.
inline Words look_up(const std::uint8_t* table, Words index) {
  return (Words)_mm256_i32gather_epi32(reinterpret_cast<const int*>(table), (__m256i)index, 1) & 0xffU;
}
/// Looks up one of eight values by the three lowest bits of each index.
inline Vec<float> pick(const float* eight, Words places) {
  return _mm256_permutevar8x32_ps(_mm256_loadu_ps(eight), (__m256i)places);
}

/// The 64-bit products of words and a constant, split into high and low words.
struct Products {
  Words high, low;
};
inline Products multiply_wide(Words x, std::uint32_t factor) {
  const __m256i f = _mm256_set1_epi32(static_cast<int>(factor));
  const __m256i even = _mm256_mul_epu32((__m256i)x, f), odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)x, 32), f);
  return {(Words)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa),
          (Words)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa)};
}
/// Interleaves a[0], b[0], c[0], d[0], a[1], ...: 32 words.
inline void store_groups(std::uint32_t* to, Words w0, Words w1, Words w2, Words w3) {
  const __m256i a = _mm256_unpacklo_epi32((__m256i)w0, (__m256i)w1),
                b = _mm256_unpackhi_epi32((__m256i)w0, (__m256i)w1);
  const __m256i c = _mm256_unpacklo_epi32((__m256i)w2, (__m256i)w3),
                d = _mm256_unpackhi_epi32((__m256i)w2, (__m256i)w3);
  const __m256i g0 = _mm256_unpacklo_epi64(a, c), g1 = _mm256_unpackhi_epi64(a, c);
  const __m256i g2 = _mm256_unpacklo_epi64(b, d), g3 = _mm256_unpackhi_epi64(b, d);
  auto* groups = reinterpret_cast<__m256i*>(to);
  _mm256_storeu_si256(groups, _mm256_permute2x128_si256(g0, g1, 0x20));
  _mm256_storeu_si256(groups + 1, _mm256_permute2x128_si256(g2, g3, 0x20));
  _mm256_storeu_si256(groups + 2, _mm256_permute2x128_si256(g0, g1, 0x31));
  _mm256_storeu_si256(groups + 3, _mm256_permute2x128_si256(g2, g3, 0x31));
}

/// Expands 16 bytes of codes, the upper four bits of each byte first, to y[0, 32) with a table of sixteen values. If
/// streamed past the caches, y must be a multiple of 32 bytes.
template <bool Streamed>
inline void store_expanded(void* y, __m256i v) {
  if constexpr (Streamed)
    _mm256_stream_si256(static_cast<__m256i*>(y), v);
  else
    _mm256_storeu_si256(static_cast<__m256i*>(y), v);
}
/// For 32-bit values, by permuting two registers.
template <bool Streamed>
inline void expand_words(const float* values, const std::uint8_t* codes, float* y) {
  for (int i = 0; i < 32; i += 8) {
    std::int32_t word;
    std::memcpy(&word, codes + i / 2, 4);
    const __m256i places = _mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24));
    const Vec<float> low = pick(values, (Words)places), high = pick(values + 8, (Words)places);
    // select by bit 3
    store_expanded<Streamed>(y + i, (__m256i)choose((Words)_mm256_slli_epi32(places, 28), high, low));
  }
}
/// For 16-bit values: lower and upper bytes are looked up separately.
template <bool Streamed>
inline void expand_halves(const void* values, const std::uint8_t* codes, void* y) {
  // Packs sixteen 16-bit numbers below 256 into bytes, the same in both lanes.
  const auto bytes = [](__m256i words) {
    const __m256i packed = _mm256_packus_epi16(words, words);  // per lane: 0-7 twice, 8-15 twice
    return _mm256_permute4x64_epi64(packed, 0b1000'1000);
  };
  const __m256i mask = _mm256_set1_epi16(0xff), table = _mm256_loadu_si256(static_cast<const __m256i*>(values));
  const __m256i lower = bytes(_mm256_and_si256(table, mask)), upper = bytes(_mm256_srli_epi16(table, 8));
  const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m128i nibble = _mm_set1_epi8(15);
  const __m128i even = _mm_and_si128(_mm_srli_epi16(packed, 4), nibble), odd = _mm_and_si128(packed, nibble);
  // The lanes of `first` hold elements 0-7 and 16-23, those of `second` 8-15 and 24-31.
  const __m256i places = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
  const __m256i l = _mm256_shuffle_epi8(lower, places), u = _mm256_shuffle_epi8(upper, places);
  const __m256i first = _mm256_unpacklo_epi8(l, u), second = _mm256_unpackhi_epi8(l, u);
  store_expanded<Streamed>(y, _mm256_permute2x128_si256(first, second, 0x20));
  store_expanded<Streamed>(static_cast<char*>(y) + 32, _mm256_permute2x128_si256(first, second, 0x31));
}
/// Writes the codes order[index] of sixteen indices, two codes per byte.
inline void store_codes(std::uint8_t* codes, const std::uint8_t* order, Words first, Words second) {
  const __m256i mixed = _mm256_packus_epi32((__m256i)first, (__m256i)second);  // 16-bit numbers, per lane
  const __m256i numbers = _mm256_permute4x64_epi64(mixed, 0b1101'1000);
  const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(order)));
  const __m256i code = _mm256_and_si256(_mm256_shuffle_epi8(table, numbers), _mm256_set1_epi16(15));
  const __m256i bytes = _mm256_madd_epi16(code, _mm256_set1_epi32(0x0001'0010));  // 16 even + odd
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(codes), _mm_packus_epi16(words, words));
}

/// Makes streamed stores visible to other threads.
inline void finish_streaming() {
  _mm_sfence();
}

}  // namespace qtrain::simd
