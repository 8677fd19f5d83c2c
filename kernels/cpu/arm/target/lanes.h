#pragma once
#include <arm_neon.h>

#include <cstdint>

#include "kernels/cpu/arm/transpose.h"

/// Primitives of kernels/cpu/simd.h on aarch64: pairs of NEON vectors, with the same lanes, names and results as
/// kernels/cpu/x86/target/lanes.h.
namespace qtrain::simd {

using ops::transpose_words;

template <class A>
struct HalfOf {
  using Half = float32x4_t;
  using Mask = uint32x4_t;
};
template <>
struct HalfOf<double> {
  using Half = float64x2_t;
  using Mask = uint64x2_t;
};

/// Per lane of A's width, either all bits set or none.
template <class A>
struct Mask {
  typename HalfOf<A>::Mask low, high;
};

/// Eight floats or four doubles, with lane-wise arithmetic and comparisons.
template <class A>
struct Vec {
  using Half = typename HalfOf<A>::Half;
  static constexpr int kHalf = 16 / static_cast<int>(sizeof(A));

  Half low, high;

  Vec() = default;
  Vec(Half l, Half h) : low(l), high(h) {}
  Vec(A x) : low(x - Half{}), high(x - Half{}) {}  // NOLINT: implicit broadcast to all lanes
  Vec(A x0, A x1, A x2, A x3) requires(kHalf == 2) : low{x0, x1}, high{x2, x3} {}

  A operator[](int i) const { return i < kHalf ? low[i] : high[i - kHalf]; }

  friend Vec operator+(Vec a, Vec b) { return {a.low + b.low, a.high + b.high}; }
  friend Vec operator-(Vec a, Vec b) { return {a.low - b.low, a.high - b.high}; }
  friend Vec operator*(Vec a, Vec b) { return {a.low * b.low, a.high * b.high}; }
  friend Vec operator/(Vec a, Vec b) { return {a.low / b.low, a.high / b.high}; }
  friend Vec operator-(Vec a) { return {-a.low, -a.high}; }
  Vec& operator+=(Vec b) { return *this = *this + b; }
  Vec& operator-=(Vec b) { return *this = *this - b; }
  Vec& operator*=(Vec b) { return *this = *this * b; }

  friend Mask<A> operator>(Vec a, Vec b) {
    return by_halves(a, b, [](Half x, Half y) { return x > y; });
  }
  friend Mask<A> operator<(Vec a, Vec b) {
    return by_halves(a, b, [](Half x, Half y) { return x < y; });
  }
  friend Mask<A> operator>=(Vec a, Vec b) {
    return by_halves(a, b, [](Half x, Half y) { return x >= y; });
  }
  friend Mask<A> operator==(Vec a, Vec b) {
    return by_halves(a, b, [](Half x, Half y) { return x == y; });
  }
  friend Mask<A> operator!=(Vec a, Vec b) {
    return by_halves(a, b, [](Half x, Half y) { return x != y; });
  }

 private:
  template <class Compare>
  static Mask<A> by_halves(Vec a, Vec b, Compare compare) {
    using M = typename HalfOf<A>::Mask;
    return {(M)compare(a.low, b.low), (M)compare(a.high, b.high)};
  }
};

/// Eight 32-bit words (Words), and eight 16-bit words (Halves).
struct Words {
  uint32x4_t low, high;

  friend Words operator+(Words a, Words b) { return {a.low + b.low, a.high + b.high}; }
  friend Words operator-(Words a, Words b) { return {a.low - b.low, a.high - b.high}; }
  friend Words operator&(Words a, Words b) { return {a.low & b.low, a.high & b.high}; }
  friend Words operator|(Words a, Words b) { return {a.low | b.low, a.high | b.high}; }
  friend Words operator^(Words a, Words b) { return {a.low ^ b.low, a.high ^ b.high}; }
  friend Words operator<<(Words a, int n) { return {a.low << n, a.high << n}; }
  friend Words operator>>(Words a, int n) { return {a.low >> n, a.high >> n}; }
};
using Halves = uint16x8_t;

template <class A>
inline Vec<A> broadcast(A x) {
  return x;
}
inline Words all_words(std::uint32_t x) {
  return {vdupq_n_u32(x), vdupq_n_u32(x)};
}

inline Words bits_of(Vec<float> v) {
  return {vreinterpretq_u32_f32(v.low), vreinterpretq_u32_f32(v.high)};
}
inline Vec<float> floats_of(Words w) {
  return {vreinterpretq_f32_u32(w.low), vreinterpretq_f32_u32(w.high)};
}
inline Vec<float> to_floats(Words whole) {
  return {vcvtq_f32_s32(vreinterpretq_s32_u32(whole.low)), vcvtq_f32_s32(vreinterpretq_s32_u32(whole.high))};
}
/// Rounds to the nearest integer, ties to even.
inline Vec<float> nearest(Vec<float> v) {
  return {vrndnq_f32(v.low), vrndnq_f32(v.high)};
}
inline Words to_whole(Vec<float> v) {
  return {vreinterpretq_u32_s32(vcvtnq_s32_f32(v.low)), vreinterpretq_u32_s32(vcvtnq_s32_f32(v.high))};
}

// Loads and stores.
inline Vec<float> load_floats(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4)};
}
inline void store_floats(float* p, Vec<float> v) {
  vst1q_f32(p, v.low);
  vst1q_f32(p + 4, v.high);
}
inline Vec<float> load_broadcast(const float* p) {
  return *p;
}
inline Vec<double> load_doubles(const double* p) {
  return {vld1q_f64(p), vld1q_f64(p + 2)};
}
inline void store_doubles(double* p, Vec<double> v) {
  vst1q_f64(p, v.low);
  vst1q_f64(p + 2, v.high);
}
inline Vec<float> load_narrowed(const double* p) {
  return {vcvt_high_f32_f64(vcvt_f32_f64(vld1q_f64(p)), vld1q_f64(p + 2)),
          vcvt_high_f32_f64(vcvt_f32_f64(vld1q_f64(p + 4)), vld1q_f64(p + 6))};
}
inline void store_widened(double* p, Vec<float> v) {
  vst1q_f64(p, vcvt_f64_f32(vget_low_f32(v.low)));
  vst1q_f64(p + 2, vcvt_high_f64_f32(v.low));
  vst1q_f64(p + 4, vcvt_f64_f32(vget_low_f32(v.high)));
  vst1q_f64(p + 6, vcvt_high_f64_f32(v.high));
}
// Through bytes, since the memory may hold any type.
inline Words load_words(const void* p) {
  const auto* bytes = static_cast<const std::uint8_t*>(p);
  return {vreinterpretq_u32_u8(vld1q_u8(bytes)), vreinterpretq_u32_u8(vld1q_u8(bytes + 16))};
}
inline void store_words(void* p, Words w) {
  auto* bytes = static_cast<std::uint8_t*>(p);
  vst1q_u8(bytes, vreinterpretq_u8_u32(w.low));
  vst1q_u8(bytes + 16, vreinterpretq_u8_u32(w.high));
}
inline Halves load_halves(const void* p) {
  return vreinterpretq_u16_u8(vld1q_u8(static_cast<const std::uint8_t*>(p)));
}
inline void store_halves(void* p, Halves h) {
  vst1q_u8(static_cast<std::uint8_t*>(p), vreinterpretq_u8_u16(h));
}

inline Vec<float> load_first(const float* p, int n) {
  float part[8] = {};
  for (int i = 0; i < n; ++i) part[i] = p[i];
  return load_floats(part);
}
inline void store_first(float* p, Vec<float> v, int n) {
  float part[8];
  store_floats(part, v);
  for (int i = 0; i < n; ++i) p[i] = part[i];
}
inline void store_first(std::uint32_t* p, Words w, int n) {
  std::uint32_t part[8];
  store_words(part, w);
  for (int i = 0; i < n; ++i) p[i] = part[i];
}

// Conversions between widths.
inline Words widen(Halves h) {
  return {vmovl_u16(vget_low_u16(h)), vmovl_high_u16(h)};
}
/// For words below 2^16.
inline Halves narrow(Words w) {
  return vmovn_high_u32(vmovn_u32(w.low), w.high);
}
inline Words join(Halves low, Halves high) {
  return {vreinterpretq_u32_u16(low), vreinterpretq_u32_u16(high)};
}
inline Words widen_bytes(const std::uint8_t* p) {
  return widen(vmovl_u8(vld1_u8(p)));
}
inline Words widen_bytes(const std::int8_t* p) {
  const int16x8_t halves = vmovl_s8(vld1_s8(p));
  return {vreinterpretq_u32_s32(vmovl_s16(vget_low_s16(halves))), vreinterpretq_u32_s32(vmovl_high_s16(halves))};
}
/// For words below 256.
inline void store_bytes(std::uint8_t* p, Words w) {
  vst1_u8(p, vmovn_u16(narrow(w)));
}
inline Vec<float> from_f16(Halves h) {
  const float16x8_t values = vreinterpretq_f16_u16(h);
  return {vcvt_f32_f16(vget_low_f16(values)), vcvt_high_f32_f16(values)};
}
inline Halves to_f16(Vec<float> v) {
  return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.low), v.high));
}

// Comparisons of floats yield words with all bits set or none.
inline Words words_of(Mask<float> m) {
  return {m.low, m.high};
}
inline Words above(Vec<float> a, Vec<float> b) {
  return words_of(a > b);
}
inline Words at_least(Vec<float> a, Vec<float> b) {
  return words_of(a >= b);
}
inline Words below(Vec<float> a, Vec<float> b) {
  return words_of(a < b);
}
/// Also true if either is NaN.
inline Words not_below(Vec<float> a, Vec<float> b) {
  return below(a, b) ^ all_words(0xffffffffU);
}
inline Words is_nan(Vec<float> v) {
  return words_of(v != v);
}
/// Compares words as signed integers.
inline Words above_signed(Words a, Words b) {
  return {vcgtq_s32(vreinterpretq_s32_u32(a.low), vreinterpretq_s32_u32(b.low)),
          vcgtq_s32(vreinterpretq_s32_u32(a.high), vreinterpretq_s32_u32(b.high))};
}
inline Words choose(Words mask, Words yes, Words no) {
  return {vbslq_u32(mask.low, yes.low, no.low), vbslq_u32(mask.high, yes.high, no.high)};
}
inline Words max_signed(Words a, Words b) {
  return choose(above_signed(a, b), a, b);
}
inline Words min_signed(Words a, Words b) {
  return choose(above_signed(a, b), b, a);
}
/// Arithmetic shift: the sign bit is replicated.
template <int N>
inline Words shift_signed(Words w) {
  return {vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(w.low), N)),
          vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(w.high), N))};
}
inline Vec<float> choose(Words mask, Vec<float> yes, Vec<float> no) {
  return {vbslq_f32(mask.low, yes.low, no.low), vbslq_f32(mask.high, yes.high, no.high)};
}
/// `mask` is the result of comparing two Vec.
inline Vec<float> select(Mask<float> mask, Vec<float> yes, Vec<float> no) {
  return choose(words_of(mask), yes, no);
}
inline Vec<double> select(Mask<double> mask, Vec<double> yes, Vec<double> no) {
  return {vbslq_f64(mask.low, yes.low, no.low), vbslq_f64(mask.high, yes.high, no.high)};
}

/// a * b + c, rounded once.
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
  return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
/// c - a * b
inline Vec<float> fnma(Vec<float> a, Vec<float> b, Vec<float> c) {
  return {vfmsq_f32(c.low, a.low, b.low), vfmsq_f32(c.high, a.high, b.high)};
}

/// Sum of the lanes, by folding halves onto each other.
inline float sum(Vec<float> v) {
  const float32x4_t x = v.low + v.high;
  const float32x2_t y = vget_low_f32(x) + vget_high_f32(x);
  return y[0] + y[1];
}

/// Lane-wise; `b` if the two are unordered (a NaN in `b` is kept, one in `a` is dropped).
template <class A>
inline Vec<A> max(Vec<A> a, Vec<A> b) {
  return select(a > b, a, b);
}
inline Vec<float> min(Vec<float> a, Vec<float> b) {
  return select(a < b, a, b);
}
inline Vec<float> sqrt(Vec<float> v) {
  return {vsqrtq_f32(v.low), vsqrtq_f32(v.high)};
}
inline Vec<double> sqrt(Vec<double> v) {
  return {vsqrtq_f64(v.low), vsqrtq_f64(v.high)};
}

// Table lookups.
inline Vec<float> look_up(const float* table, Words index) {
  return {float32x4_t{table[index.low[0]], table[index.low[1]], table[index.low[2]], table[index.low[3]]},
          float32x4_t{table[index.high[0]], table[index.high[1]], table[index.high[2]], table[index.high[3]]}};
}
inline Words look_up(const std::uint8_t* table, Words index) {
  return {uint32x4_t{table[index.low[0]], table[index.low[1]], table[index.low[2]], table[index.low[3]]},
          uint32x4_t{table[index.high[0]], table[index.high[1]], table[index.high[2]], table[index.high[3]]}};
}
/// Byte indices of the words at the given indices of a table.
inline uint8x16_t bytes_at(uint32x4_t places) {
  return vreinterpretq_u8_u32(places * 0x04040404U + 0x03020100U);
}
/// Looks up one of eight values by the three lowest bits of each index.
inline Vec<float> pick(const float* eight, Words places) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(eight);
  const uint8x16x2_t table{{vld1q_u8(bytes), vld1q_u8(bytes + 16)}};
  const auto four = [&](uint32x4_t at) { return vreinterpretq_f32_u8(vqtbl2q_u8(table, bytes_at(at & 7U))); };
  return {four(places.low), four(places.high)};
}

/// The 64-bit products of words and a constant, split into high and low words.
struct Products {
  Words high, low;
};
inline Products multiply_wide(Words x, std::uint32_t factor) {
  Products p;
  const auto four = [factor](uint32x4_t w, uint32x4_t& high, uint32x4_t& low) {
    const uint32x4_t first = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(w), factor));
    const uint32x4_t second = vreinterpretq_u32_u64(vmull_high_n_u32(w, factor));
    low = vuzp1q_u32(first, second);
    high = vuzp2q_u32(first, second);
  };
  four(x.low, p.high.low, p.low.low);
  four(x.high, p.high.high, p.low.high);
  return p;
}
/// Interleaves a[0], b[0], c[0], d[0], a[1], ...: 32 words.
inline void store_groups(std::uint32_t* to, Words a, Words b, Words c, Words d) {
  vst4q_u32(to, {{a.low, b.low, c.low, d.low}});
  vst4q_u32(to + 16, {{a.high, b.high, c.high, d.high}});
}

// Expands 16 bytes of codes, the upper four bits of each byte first, to y[0, 32) with a table of sixteen values. NEON
// has no streaming stores, so `Streamed` has no effect.
template <bool Streamed>
inline void expand_words(const float* values, const std::uint8_t* codes, float* y) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values);
  const uint8x16x4_t table{{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
  const uint8x16_t packed = vld1q_u8(codes), even = vshrq_n_u8(packed, 4), odd = packed & 15;
  const uint8x16_t places[2] = {vzip1q_u8(even, odd), vzip2q_u8(even, odd)};
  for (int i = 0; i < 2; ++i, y += 16) {
    const uint16x8_t halves[2] = {vmovl_u8(vget_low_u8(places[i])), vmovl_high_u8(places[i])};
    for (int j = 0; j < 2; ++j) {
      const Words at = widen(halves[j]);
      store_floats(y + 8 * j, {vreinterpretq_f32_u8(vqtbl4q_u8(table, bytes_at(at.low))),
                               vreinterpretq_f32_u8(vqtbl4q_u8(table, bytes_at(at.high)))});
    }
  }
}
/// For 16-bit values: lower and upper bytes are looked up separately.
template <bool Streamed>
inline void expand_halves(const void* values, const std::uint8_t* codes, void* y) {
  const uint8x16x2_t table = vld2q_u8(static_cast<const std::uint8_t*>(values));
  const uint8x16_t packed = vld1q_u8(codes), even = vshrq_n_u8(packed, 4), odd = packed & 15;
  auto* to = static_cast<std::uint8_t*>(y);
  const auto sixteen = [&](uint8x16_t places, std::uint8_t* p) {
    vst2q_u8(p, {{vqtbl1q_u8(table.val[0], places), vqtbl1q_u8(table.val[1], places)}});
  };
  sixteen(vzip1q_u8(even, odd), to);
  sixteen(vzip2q_u8(even, odd), to + 32);
}
/// Writes the codes order[index] of sixteen indices, two codes per byte.
inline void store_codes(std::uint8_t* codes, const std::uint8_t* order, Words first, Words second) {
  const uint8x16_t places = vmovn_high_u16(vmovn_u16(narrow(first)), narrow(second));
  const uint8x16_t code = vqtbl1q_u8(vld1q_u8(order), places);
  const uint8x16_t even = vuzp1q_u8(code, code), odd = vuzp2q_u8(code, code);
  vst1_u8(codes, vget_low_u8(even << 4 | odd));
}

inline void finish_streaming() {}

}  // namespace qtrain::simd
