#include "kernels/cpu/x86/expand4_avx512.h"

#include <immintrin.h>

namespace qtrain::ops {
namespace {

template <Stores S>
void put(void* y, __m512i v) {
  if constexpr (S == Stores::streamed)
    _mm512_stream_si512(static_cast<__m512i*>(y), v);
  else
    _mm512_storeu_si512(y, v);
}

/// The sixteen values of a block are in one register, and codes are indices into it.
struct ToF32 {
  static constexpr int kBytes = 4;

  static __m512i table(__m512 values) { return _mm512_castps_si512(values); }
  /// Expands sixteen elements from eight bytes: each byte becomes two 32-bit indices, of which the low four bits count.
  template <Stores S>
  static void expand32(const std::uint8_t* codes, __m512i table, char* y) {
    for (int half = 0; half < 2; ++half) {
      const __m512i byte = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + 8 * half)));
      const __m512i places = _mm512_or_si512(_mm512_srli_epi64(byte, 4), _mm512_slli_epi64(byte, 32));
      put<S>(y + 64 * half, _mm512_permutexvar_epi32(places, table));
    }
  }
};

/// Likewise for 16-bit values: the table is in the register twice, since an index has five bits.
struct ToHalf {
  static constexpr int kBytes = 2;

  template <Stores S>
  static void expand32(const std::uint8_t* codes, __m512i table, char* y) {
    const __m512i byte = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
    const __m512i places = _mm512_or_si512(_mm512_srli_epi32(byte, 4), _mm512_slli_epi32(byte, 16));
    put<S>(y, _mm512_permutexvar_epi16(places, table));
  }
};
struct ToF16 : ToHalf {
  static __m512i table(__m512 values) {
    return _mm512_broadcast_i64x4(_mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
};
struct ToBf16 : ToHalf {
  /// Rounds to nearest even; NaN stays NaN.
  static __m512i table(__m512 values) {
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m512i kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
  }
};

template <class To, Stores S>
void expand_blocks(const WholeBlocks4& w) {
  const __m512 map = _mm512_loadu_ps(w.map);
  const std::uint8_t* codes = w.codes;
  char* y = static_cast<char*>(w.y);
  const float* scales = w.scales;
  const std::int64_t blocks = w.blocks, blocksize = w.blocksize;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const __m512i table = To::table(_mm512_mul_ps(map, _mm512_set1_ps(scales[b])));
    for (std::int64_t i = 0; i < blocksize; i += 32, codes += 16, y += 32 * To::kBytes)
      To::template expand32<S>(codes, table, y);
  }
}

}  // namespace

const ExpandBlocks4 kExpandF32Avx512[2] = {expand_blocks<ToF32, Stores::cached>,
                                           expand_blocks<ToF32, Stores::streamed>};
const ExpandBlocks4 kExpandBf16Avx512[2] = {expand_blocks<ToBf16, Stores::cached>,
                                            expand_blocks<ToBf16, Stores::streamed>};
const ExpandBlocks4 kExpandF16Avx512[2] = {expand_blocks<ToF16, Stores::cached>,
                                           expand_blocks<ToF16, Stores::streamed>};

}  // namespace qtrain::ops
