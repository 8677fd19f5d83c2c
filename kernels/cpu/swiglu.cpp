#include "kernels/swiglu.h"

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::Vec;

template <class A>
Vec<A> sigmoid(Vec<A> x) {
  return A{1} / (A{1} + simd::exp(-x));
}

template <class T>
void forward(Ctx& ctx, const SwiGlu& a) {
  using A = Acc<T>;
  T* y = a.y.as<T>();
  const T *gate = a.gate.as<T>(), *up = a.up.as<T>();
  for_ranges(ctx, a.y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    simd::each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      const std::int64_t i = begin + j;
      const Vec<A> g = simd::load<A>(gate + i, lanes);
      simd::store<A>(y + i, simd::load<A>(up + i, lanes) * g * sigmoid<A>(g), lanes);
    });
  });
}

/// All inputs of an element are read before its gradients are written: dgate and dup may be any of the inputs.
template <class T>
void backward(Ctx& ctx, const SwiGluGrad& a) {
  using A = Acc<T>;
  T* dgate = a.dgate.wanted() ? a.dgate.t.as<T>() : nullptr;
  T* dup = a.dup.wanted() ? a.dup.t.as<T>() : nullptr;
  const T *dy = a.dy.as<T>(), *gate = a.gate.as<T>(), *up = a.up.as<T>();
  for_ranges(ctx, a.dy.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    simd::each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      const std::int64_t i = begin + j;
      const Vec<A> g = simd::load<A>(gate + i, lanes), s = sigmoid<A>(g);
      const Vec<A> d = simd::load<A>(dy + i, lanes), u = simd::load<A>(up + i, lanes);
      if (dup) write<A>(dup + i, d * g * s, lanes, a.dup.mode);
      if (dgate) write<A>(dgate + i, d * u * s * (A{1} + g * (A{1} - s)), lanes, a.dgate.mode);
    });
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const SwiGlu& a) {
  dispatch_float(a.y.dtype, [&]<class T>() { forward<T>(ctx, a); });
}
void run_cpu(Ctx& ctx, const SwiGluGrad& a) {
  dispatch_float(a.dy.dtype, [&]<class T>() { backward<T>(ctx, a); });
}

}  // namespace qtrain::ops
