#pragma once
#include <target/lanes.h>  // of x86/ or arm/

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/half.h"

/// 256-bit vectors for the CPU kernels: loads and stores convert from storage types (f64, f32, bf16, f16) to the type
/// of the arithmetic (f64 or f32). All sums have a fixed order. Private to kernels/cpu. Processor-specific code is in
/// lanes.h.
namespace qtrain::simd {

template <class A>
inline constexpr int kLanes = 32 / static_cast<int>(sizeof(A));
template <class A>
using FullLanes = std::integral_constant<int, kLanes<A>>;

/// The type in which values stored as T are computed.
template <class T>
using Acc = std::conditional_t<std::is_same_v<std::remove_const_t<T>, double>, double, float>;

inline Vec<float> from_bf16(Halves h) {
  return floats_of(widen(h) << 16);
}
/// Rounds to nearest even; NaN stays NaN.
inline Halves to_bf16(Vec<float> v) {
  const Words bits = bits_of(v), odd = bits >> 16 & all_words(1);
  const Words rounded = bits + (odd + all_words(0x7fff)), quiet = bits | all_words(0x400000);
  return narrow(choose(is_nan(v), quiet, rounded) >> 16);
}

template <class A, class T>
inline Vec<A> load(const T* p, FullLanes<A> = {}) {
  if constexpr (std::is_same_v<A, double>) {
    if constexpr (std::is_same_v<T, double>)
      return load_doubles(p);
    else
      return Vec<double>{double(float(p[0])), double(float(p[1])), double(float(p[2])), double(float(p[3]))};
  } else if constexpr (std::is_same_v<T, float>) {
    return load_floats(p);
  } else if constexpr (std::is_same_v<T, double>) {
    return load_narrowed(p);
  } else if constexpr (std::is_same_v<T, F16>) {
    return from_f16(load_halves(p));
  } else {
    return from_bf16(load_halves(p));
  }
}

template <class A, class T>
inline void store(T* p, Vec<A> v, FullLanes<A> = {}) {
  if constexpr (std::is_same_v<A, double>) {
    if constexpr (std::is_same_v<T, double>)
      return store_doubles(p, v);
    else
      for (int i = 0; i < 4; ++i) p[i] = T(static_cast<float>(v[i]));
  } else if constexpr (std::is_same_v<T, float>) {
    store_floats(p, v);
  } else if constexpr (std::is_same_v<T, double>) {
    store_widened(p, v);
  } else if constexpr (std::is_same_v<T, F16>) {
    store_halves(p, to_f16(v));
  } else {
    store_halves(p, to_bf16(v));
  }
}

/// Loads the first `n` < kLanes elements, followed by zeros.
template <class A, class T>
inline Vec<A> load(const T* p, int n) {
  if constexpr (std::is_same_v<A, float> && std::is_same_v<T, float>) {
    return load_first(p, n);
  } else {
    T part[kLanes<A>] = {};
    for (int i = 0; i < n; ++i) part[i] = p[i];
    return load<A>(part);
  }
}
template <class A, class T>
inline void store(T* p, Vec<A> v, int n) {
  if constexpr (std::is_same_v<A, float> && std::is_same_v<T, float>) {
    store_first(p, v, n);
  } else {
    T part[kLanes<A>];
    store<A>(part, v);
    for (int i = 0; i < n; ++i) p[i] = part[i];
  }
}

/// Calls body(i, lanes) for i = 0, kLanes, ...: `lanes` is FullLanes, or an int for a shorter last chunk.
template <class A, class Body>
inline void each(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes<A> <= n; i += kLanes<A>) body(i, FullLanes<A>{});
  if (i < n) body(i, static_cast<int>(n - i));
}

/// Sum of the lanes, in pairs.
inline double sum(Vec<double> v) {
  return (v[0] + v[2]) + (v[1] + v[3]);
}

template <class A>
inline A max_lane(Vec<A> v) {
  A m = v[0];
  for (int i = 1; i < kLanes<A>; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

inline Vec<float> magnitude(Vec<float> v) {
  return floats_of(bits_of(v) & all_words(0x7fffffff));
}

/// e^x to 1.2 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, e^r = 1 + r + r^2 q(r), where q is a minimax polynomial of degree
/// 4. 0 below -87.3 (subnormal results would take a hundred cycles each), infinity above 88.8, NaN for NaN.
inline Vec<float> exp(Vec<float> x) {
  const Vec<float> lowest = broadcast(-87.3F);
  const Vec<float> in_range = min(broadcast(89.F), max(lowest, x));
  const Vec<float> n = nearest(in_range * 1.44269504F);
  const Vec<float> r = fnma(n, broadcast(-2.12194440e-4F), fnma(n, broadcast(0.693359375F), in_range));
  Vec<float> q = broadcast(0.0013926926614F);
  q = fma(q, r, broadcast(0.00836377387441F));
  q = fma(q, r, broadcast(0.0416665501103F));
  q = fma(q, r, broadcast(0.166665733819F));
  q = fma(q, r, broadcast(0.5F));
  const Vec<float> e = fma(r * r, q, r) + 1.F;
  // 2^n in two steps, because 2^128 alone would overflow.
  const Words whole = to_whole(n), half = shift_signed<1>(whole);
  const auto power = [](Words k) { return floats_of((k + all_words(127)) << 23); };
  const Vec<float> result = e * power(half) * power(whole - half);
  return floats_of(bits_of(result) & not_below(x, lowest));
}
inline Vec<double> exp(Vec<double> x) {
  return Vec<double>{std::exp(x[0]), std::exp(x[1]), std::exp(x[2]), std::exp(x[3])};
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
