#pragma once
#include "kernels/cpu/simd.h"

/// Softcap of scores and logits: cap * tanh(x / cap). Private to kernels/cpu.
namespace qtrain::simd {

/// tanh x to 2 ulp: below 5/8, x + x^3 q(x^2), where q is a minimax polynomial of degree 4 (relative error 4.4e-9);
/// above, 1 - 2 / (e^2|x| + 1) with the sign of x. NaN for NaN.
inline Vec<float> tanh(Vec<float> x) {
  const Words sign = bits_of(x) & all_words(0x80000000U);
  const Vec<float> size = floats_of(bits_of(x) ^ sign), square = x * x;
  Vec<float> q = broadcast(-0.0057049869936F);
  q = fma(q, square, broadcast(0.0206390872449F));
  q = fma(q, square, broadcast(-0.0537397150859F));
  q = fma(q, square, broadcast(0.133314421982F));
  q = fma(q, square, broadcast(-0.33333281942F));
  const Vec<float> small = fma(x * square, q, x);
  const Vec<float> large = 1.F - 2.F / (exp(size + size) + 1.F);
  return floats_of(bits_of(choose(below(size, broadcast(0.625F)), small, large)) | sign);
}
inline Vec<double> tanh(Vec<double> x) {
  return Vec<double>{std::tanh(x[0]), std::tanh(x[1]), std::tanh(x[2]), std::tanh(x[3])};
}

/// x = tanh(factor * x)
template <class A>
inline void tanh_of(A* x, std::int64_t n, A factor) {
  const Vec<A> f = broadcast(factor);
  each<A>(n, [&](std::int64_t i, auto lanes) { store<A>(x + i, tanh(load<A>(x + i, lanes) * f), lanes); });
}

/// Logits as the loss or sampler uses them: cap * tanh(scale * z / cap), or scale * z if cap is 0.
template <class A>
struct LogitCap {
  A scale, cap;

  bool changes_nothing() const { return scale == 1 && cap == 0; }
  Vec<A> value(Vec<A> z) const { return cap > 0 ? cap * tanh(z * (scale / cap)) : z * scale; }
  /// The derivative of the value with respect to z.
  Vec<A> slope(Vec<A> value) const {
    if (!(cap > 0)) return broadcast(scale);
    const Vec<A> t = value / cap;
    return scale * (1 - t * t);
  }
};
template <class A>
LogitCap<A> logit_cap(double scale, double softcap) {
  return {static_cast<A>(scale), static_cast<A>(softcap)};
}

}  // namespace qtrain::simd
