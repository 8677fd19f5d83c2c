#include "kernels/cpu/glu_gate.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::Vec;

template <class T, Activation K>
void forward(Ctx& ctx, const Glu& a) {
  using A = Acc<T>;
  T* y = a.y.as<T>();
  const T *gate = a.gate.as<T>(), *up = a.up.as<T>();
  for_ranges(ctx, a.y.numel(), kBlockSize, [&](std::int64_t begin, std::int64_t end) {
    simd::each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      const std::int64_t i = begin + j;
      const Vec<A> g = simd::load<A>(gate + i, lanes);
      simd::store<A>(y + i, simd::load<A>(up + i, lanes) * g * Gate<A>(g, K).s, lanes);
    });
  });
}

/// All inputs of an element are read before its gradients are written, so dgate and dup may be any of the inputs.
template <class T, Activation K>
void backward(Ctx& ctx, const GluGrad& a) {
  using A = Acc<T>;
  T* dgate = a.dgate.wanted() ? a.dgate.t.as<T>() : nullptr;
  T* dup = a.dup.wanted() ? a.dup.t.as<T>() : nullptr;
  const T *dy = a.dy.as<T>(), *gate = a.gate.as<T>(), *up = a.up.as<T>();
  for_ranges(ctx, a.dy.numel(), kBlockSize, [&](std::int64_t begin, std::int64_t end) {
    simd::each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      const std::int64_t i = begin + j;
      const Vec<A> g = simd::load<A>(gate + i, lanes);
      const auto [s, turn] = Gate<A>(g, K);
      const Vec<A> d = simd::load<A>(dy + i, lanes), u = simd::load<A>(up + i, lanes);
      if (dup) write<A>(dup + i, d * g * s, lanes, a.dup.mode);
      if (dgate) write<A>(dgate + i, d * u * s * (A{1} + turn * (A{1} - s)), lanes, a.dgate.mode);
    });
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const Glu& a) {
  dispatch_float(a.y.dtype, [&]<class T>() {
    if (a.activation == Activation::silu) return forward<T, Activation::silu>(ctx, a);
    forward<T, Activation::gelu_tanh>(ctx, a);
  });
}
void run_cpu(Ctx& ctx, const GluGrad& a) {
  dispatch_float(a.dy.dtype, [&]<class T>() {
    if (a.activation == Activation::silu) return backward<T, Activation::silu>(ctx, a);
    backward<T, Activation::gelu_tanh>(ctx, a);
  });
}

}  // namespace qtrain::ops
