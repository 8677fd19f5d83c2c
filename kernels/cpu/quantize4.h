#pragma once
#include <bit>

#include "kernels/cpu/expand4.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops.h"
#include "kernels/quantize.h"

/// 4-bit blocks as CPU ops read them.
namespace qtrain::ops {

/// The scales of blocks.
class Scales {
 public:
  explicit Scales(const Blocks4& w) : size_(w.nested_blocksize) {
    if (!w.nested()) {
      absmax_ = w.absmax.as<float>();
      return;
    }
    codes_ = w.absmax.as<std::uint8_t>();
    absmax_ = w.nested_absmax.as<float>();
    map_ = w.nested_map.as<float>();
    offset_ = *w.offset.as<float>();
  }
  float operator[](std::int64_t block) const;

 private:
  const std::uint8_t* codes_ = nullptr;
  const float *absmax_ = nullptr, *map_ = nullptr;
  float offset_ = 0;
  int size_;
};

/// The sixteen values that a block of one scale has.
template <class T>
class BlockValues {
 public:
  BlockValues(const float* map, float scale) {
    const simd::Vec<float> s = simd::broadcast(scale);
    simd::store<float>(values_, simd::load<float>(map) * s);
    simd::store<float>(values_ + 8, simd::load<float>(map + 8) * s);
  }
  T operator[](int code) const { return values_[code]; }

  /// y[0, 32) from 16 bytes of codes.
  template <Stores S>
  void expand32(const std::uint8_t* codes, T* y) const {
    if constexpr (sizeof(T) == 4)
      for (int i = 0; i < 32; i += 8) put<S>(y + i, eight(codes + i / 2));
    else
      sixteens<S>(codes, y);
  }

 private:
  /// f32: values by permuting two registers.
  __m256i eight(const std::uint8_t* codes) const {
    std::int32_t word;
    std::memcpy(&word, codes, 4);
    const __m256i places = _mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24));
    const __m256 low = _mm256_permutevar8x32_ps(simd::load<float>(values_), places);
    const __m256 high = _mm256_permutevar8x32_ps(simd::load<float>(values_ + 8), places);
    return _mm256_castps_si256(
        _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(places, 28))));  // by bit 3
  }
  /// 16-bit types: lower and upper bytes are looked up apart.
  template <Stores S>
  void sixteens(const std::uint8_t* codes, T* y) const {
    const __m256i mask = _mm256_set1_epi16(0xff);
    const __m256i table = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values_));
    const __m256i lower = bytes(_mm256_and_si256(table, mask)), upper = bytes(_mm256_srli_epi16(table, 8));
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    const __m128i nibble = _mm_set1_epi8(15);
    const __m128i even = _mm_and_si128(_mm_srli_epi16(packed, 4), nibble), odd = _mm_and_si128(packed, nibble);
    // Lanes hold elements 0-7 and 16-23 of `first`, 8-15 and 24-31 of `second`.
    const __m256i places = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
    const __m256i l = _mm256_shuffle_epi8(lower, places), u = _mm256_shuffle_epi8(upper, places);
    const __m256i first = _mm256_unpacklo_epi8(l, u), second = _mm256_unpackhi_epi8(l, u);
    put<S>(y, _mm256_permute2x128_si256(first, second, 0x20));
    put<S>(y + 16, _mm256_permute2x128_si256(first, second, 0x31));
  }
  /// Sixteen 16-bit numbers below 256 as bytes, the same in both lanes.
  static __m256i bytes(__m256i words) {
    const __m256i packed = _mm256_packus_epi16(words, words);  // by lanes: 0-7 twice, 8-15 twice
    return _mm256_permute4x64_epi64(packed, 0b1000'1000);
  }
  template <Stores S>
  static void put(T* y, __m256i v) {
    if constexpr (S == Stores::streamed)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(y), v);
    else
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), v);
  }

  alignas(32) T values_[16];
};

/// The code of element i.
inline int code_at(const std::uint8_t* codes, std::int64_t i) {
  return i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
}

/// Elements of w in any range, as T.
template <class T>
class Expansion {
 public:
  explicit Expansion(const Blocks4& w)
      : w_(w),
        scales_(w),
        codes_(w.codes.as<std::uint8_t>()),
        map_(w.map.as<float>()),
        wide_(cpu_isa() != CpuIsa::avx2) {}

  /// y[0, end - begin) = elements [begin, end).
  template <Stores S = Stores::cached>
  void range(std::int64_t begin, std::int64_t end, T* y) const {
    if (!wide_) return narrow<S>(begin, end, y);
    const std::int64_t size = w_.blocksize, first = std::min(end, ceil_div(begin, size) * size);
    const std::int64_t blocks = (end - first) / size, last = first + blocks * size;
    narrow<S>(begin, first, y);
    whole<S>(first / size, blocks, y + (first - begin));
    narrow<S>(last, end, y + (last - begin));
  }

 private:
  template <Stores S>
  void narrow(std::int64_t begin, std::int64_t end, T* y) const {
    while (begin < end) {
      const std::int64_t block = begin / w_.blocksize, stop = std::min<std::int64_t>(end, (block + 1) * w_.blocksize);
      const BlockValues<T> values(map_, scales_[block]);
      if (begin % 2 == 1) *y++ = values[code_at(codes_, begin++)];
      for (; begin + 32 <= stop; begin += 32, y += 32) values.template expand32<S>(codes_ + begin / 2, y);
      for (; begin < stop; ++begin) *y++ = values[code_at(codes_, begin)];
    }
  }
  template <Stores S>
  void whole(std::int64_t block, std::int64_t blocks, T* y) const {
    constexpr std::int64_t kMax = 64;  // scales at a time
    const auto& table = std::is_same_v<T, float>  ? kExpandF32Avx512
                        : std::is_same_v<T, Bf16> ? kExpandBf16Avx512
                                                  : kExpandF16Avx512;
    float scales[kMax];
    for (const std::int64_t end = block + blocks; block < end; block += kMax) {
      const std::int64_t count = std::min(kMax, end - block);
      for (std::int64_t i = 0; i < count; ++i) scales[i] = scales_[block + i];
      table[static_cast<int>(S)]({codes_ + block * w_.blocksize / 2, scales, map_, count, w_.blocksize, y});
      y += count * w_.blocksize;
    }
  }

  const Blocks4& w_;
  Scales scales_;
  const std::uint8_t* codes_;
  const float* map_;
  bool wide_;
};

}  // namespace qtrain::ops
