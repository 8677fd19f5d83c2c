#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/half.h"

/// 256-bit vectors for the CPU kernels: loads and stores convert storage (f64, f32, bf16, f16) to the type of the
/// arithmetic (f64 or f32). All sums have a fixed order. Private to kernels/cpu, compiled for AVX2 with FMA.
namespace qtrain::simd {

template <class A>
struct VecOf {
  typedef A type __attribute__((vector_size(32)));  // NOLINT: vector_size wants a typedef
};
template <class A>
using Vec = typename VecOf<A>::type;
template <class A>
inline constexpr int kLanes = 32 / static_cast<int>(sizeof(A));
template <class A>
using FullLanes = std::integral_constant<int, kLanes<A>>;

/// The type that values stored as T are computed in.
template <class T>
using Acc = std::conditional_t<std::is_same_v<std::remove_const_t<T>, double>, double, float>;

template <class A>
inline Vec<A> broadcast(A x) {
  return x - Vec<A>{};
}

inline Vec<float> widen(__m128i bf16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}

/// Rounds to nearest even; NaN stays NaN.
inline __m128i narrow(Vec<float> v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

template <class A, class T>
inline Vec<A> load(const T* p, FullLanes<A> = {}) {
  if constexpr (std::is_same_v<A, double>) {
    if constexpr (std::is_same_v<T, double>)
      return _mm256_loadu_pd(p);
    else
      return Vec<double>{double(float(p[0])), double(float(p[1])), double(float(p[2])), double(float(p[3]))};
  } else if constexpr (std::is_same_v<T, float>) {
    return _mm256_loadu_ps(p);
  } else if constexpr (std::is_same_v<T, double>) {
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(p + 4)), _mm256_cvtpd_ps(_mm256_loadu_pd(p)));
  } else if constexpr (std::is_same_v<T, F16>) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  } else {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
}

template <class A, class T>
inline void store(T* p, Vec<A> v, FullLanes<A> = {}) {
  if constexpr (std::is_same_v<A, double>) {
    if constexpr (std::is_same_v<T, double>)
      return _mm256_storeu_pd(p, v);
    else
      for (int i = 0; i < 4; ++i) p[i] = T(static_cast<float>(v[i]));
  } else if constexpr (std::is_same_v<T, float>) {
    _mm256_storeu_ps(p, v);
  } else if constexpr (std::is_same_v<T, double>) {
    _mm256_storeu_pd(p, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
    _mm256_storeu_pd(p + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
  } else if constexpr (std::is_same_v<T, F16>) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(v));
  }
}

/// All bits set in the first `n` of eight lanes.
inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/// The first `n` < kLanes elements, then zeros.
template <class A, class T>
inline Vec<A> load(const T* p, int n) {
  if constexpr (std::is_same_v<A, float> && std::is_same_v<T, float>) {
    return _mm256_maskload_ps(p, first_lanes(n));
  } else {
    T part[kLanes<A>] = {};
    for (int i = 0; i < n; ++i) part[i] = p[i];
    return load<A>(part);
  }
}
template <class A, class T>
inline void store(T* p, Vec<A> v, int n) {
  if constexpr (std::is_same_v<A, float> && std::is_same_v<T, float>) {
    _mm256_maskstore_ps(p, first_lanes(n), v);
  } else {
    T part[kLanes<A>];
    store<A>(part, v);
    for (int i = 0; i < n; ++i) p[i] = part[i];
  }
}

/// body(i, lanes) for i = 0, kLanes, ...: `lanes` is FullLanes, and an int for a shorter last chunk.
template <class A, class Body>
inline void each(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes<A> <= n; i += kLanes<A>) body(i, FullLanes<A>{});
  if (i < n) body(i, static_cast<int>(n - i));
}

/// Sum of the lanes: halves are folded onto each other.
inline float sum(Vec<float> v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
inline double sum(Vec<double> v) {
  return (v[0] + v[2]) + (v[1] + v[3]);
}

/// Lane by lane, `b` where the two do not compare (a NaN in `b` stays, one in `a` goes).
inline Vec<float> max(Vec<float> a, Vec<float> b) {
  return _mm256_max_ps(a, b);
}
inline Vec<double> max(Vec<double> a, Vec<double> b) {
  return _mm256_max_pd(a, b);
}

template <class A>
inline A max_lane(Vec<A> v) {
  A m = v[0];
  for (int i = 1; i < kLanes<A>; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

inline Vec<float> sqrt(Vec<float> v) {
  return _mm256_sqrt_ps(v);
}
inline Vec<double> sqrt(Vec<double> v) {
  return _mm256_sqrt_pd(v);
}

/// e^x to 1.2 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, e^r = 1 + r + r^2 q(r) with q a minimax polynomial of degree 4.
/// 0 below -87.3 (subnormal results would take a hundred cycles each), infinity above 88.8, NaN for NaN.
inline Vec<float> exp(Vec<float> x) {
  const __m256 in_range = _mm256_min_ps(_mm256_set1_ps(89.F), _mm256_max_ps(_mm256_set1_ps(-87.3F), x));
  const __m256 n = _mm256_round_ps(in_range * 1.44269504F, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Vec<float> r =
      _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), in_range));
  __m256 q = _mm256_set1_ps(0.0013926926614F);
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.00836377387441F));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.0416665501103F));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.166665733819F));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.5F));
  const __m256 e = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r), _mm256_set1_ps(1.F));
  // 2^n in two steps, because 2^128 alone is not a number.
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  const auto power = [](__m256i k) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k, _mm256_set1_epi32(127)), 23));
  };
  const __m256 result = e * power(half) * power(_mm256_sub_epi32(whole, half));
  return _mm256_and_ps(result, _mm256_cmp_ps(x, _mm256_set1_ps(-87.3F), _CMP_NLT_UQ));
}
inline Vec<double> exp(Vec<double> x) {
  for (int i = 0; i < 4; ++i) x[i] = std::exp(x[i]);
  return x;
}

/// sum over i of a[i] * b[i], in two interleaved chains of lanes.
template <class A, class Ta, class Tb>
inline A dot(const Ta* a, const Tb* b, std::int64_t n) {
  Vec<A> even{}, odd{};
  constexpr int w = kLanes<A>;
  std::int64_t i = 0;
  for (; i + 2 * w <= n; i += 2 * w) {
    even += load<A>(a + i) * load<A>(b + i);
    odd += load<A>(a + i + w) * load<A>(b + i + w);
  }
  each<A>(n - i, [&](std::int64_t j, auto lanes) { even += load<A>(a + i + j, lanes) * load<A>(b + i + j, lanes); });
  return sum(even + odd);
}

/// y += s * x
template <class A, class Ty, class Tx>
inline void axpy(Ty* y, A s, const Tx* x, std::int64_t n) {
  const Vec<A> scale = broadcast(s);
  each<A>(n, [&](std::int64_t i, auto lanes) {
    store<A>(y + i, load<A>(y + i, lanes) + scale * load<A>(x + i, lanes), lanes);
  });
}

}  // namespace qtrain::simd
