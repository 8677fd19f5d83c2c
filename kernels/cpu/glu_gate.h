#pragma once
#include "kernels/cpu/loops.h"
#include "kernels/glu.h"

/// The gate of a gated linear unit, shared by glu and packed_glu.
namespace qtrain::ops {

template <class A>
simd::Vec<A> sigmoid(simd::Vec<A> x) {
  return A{1} / (A{1} + simd::exp(-x));
}

/// z(g) = 2 sqrt(2/pi) (g + 0.044715 g^3), and its derivative.
template <class A>
struct GeluPolynomial {
  static constexpr A kLinear = A(1.5957691216057308), kCubic = A(0.044715);

  static simd::Vec<A> value(simd::Vec<A> g) { return kLinear * g * (A{1} + kCubic * (g * g)); }
  static simd::Vec<A> slope(simd::Vec<A> g) { return kLinear * (A{1} + A{3} * kCubic * (g * g)); }
};

/// s(z(g)) and g z'(g).
template <class A>
struct Gate {
  simd::Vec<A> s, turn;

  Gate(simd::Vec<A> g, Activation activation) : s(), turn(g) {
    const bool silu = activation == Activation::silu;
    s = sigmoid<A>(silu ? g : GeluPolynomial<A>::value(g));
    if (!silu) turn = g * GeluPolynomial<A>::slope(g);
  }
};

}  // namespace qtrain::ops
