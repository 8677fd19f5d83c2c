#pragma once
#include "kernels/cpu/simd.h"

/// Capped scores and logits: cap * tanh(x / cap). Private to kernels/cpu.
namespace qtrain::simd {

/// tanh x to 2 ulp: below 5/8 x + x^3 q(x^2) with q a minimax polynomial of degree 4 (relative error 4.4e-9), above
/// 1 - 2 / (e^2|x| + 1) with the sign of x. NaN for NaN.
inline Vec<float> tanh(Vec<float> x) {
  const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.F)), size = _mm256_xor_ps(x, sign);
  const __m256 square = _mm256_mul_ps(x, x);
  __m256 q = _mm256_set1_ps(-0.0057049869936F);
  q = _mm256_fmadd_ps(q, square, _mm256_set1_ps(0.0206390872449F));
  q = _mm256_fmadd_ps(q, square, _mm256_set1_ps(-0.0537397150859F));
  q = _mm256_fmadd_ps(q, square, _mm256_set1_ps(0.133314421982F));
  q = _mm256_fmadd_ps(q, square, _mm256_set1_ps(-0.33333281942F));
  const __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(x, square), q, x);
  const Vec<float> large = 1.F - 2.F / (exp(size + size) + 1.F);
  return _mm256_blendv_ps(_mm256_or_ps(large, sign), small, _mm256_cmp_ps(size, _mm256_set1_ps(0.625F), _CMP_LT_OQ));
}
inline Vec<double> tanh(Vec<double> x) {
  for (int i = 0; i < 4; ++i) x[i] = std::tanh(x[i]);
  return x;
}

/// x = tanh(factor * x)
template <class A>
inline void tanh_of(A* x, std::int64_t n, A factor) {
  const Vec<A> f = broadcast(factor);
  each<A>(n, [&](std::int64_t i, auto lanes) { store<A>(x + i, tanh(load<A>(x + i, lanes) * f), lanes); });
}

}  // namespace qtrain::simd
