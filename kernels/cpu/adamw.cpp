#include "kernels/adamw.h"

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Vec;

template <class A>
void step(Ctx& ctx, const AdamW& a) {
  A *param = a.param.as<A>(), *m = a.m.as<A>(), *v = a.v.as<A>();
  const A* grad = a.grad.as<A>();
  const double *control = a.control.as<double>(), *factor = a.factor.as<double>();
  if (factor[1] == 0) return;
  const double lr = control[0];
  const A scale = static_cast<A>(factor[0]), keep = static_cast<A>(1 - lr * a.decay);
  const A b1 = static_cast<A>(a.beta1), c1 = static_cast<A>(1 - a.beta1);
  const A b2 = static_cast<A>(a.beta2), c2 = static_cast<A>(1 - a.beta2);
  const A rate = static_cast<A>(lr / control[1]), unbias = static_cast<A>(1 / std::sqrt(control[2]));
  const A eps = static_cast<A>(a.eps);
  for_ranges(ctx, a.param.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    simd::each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      const std::int64_t i = begin + j;
      const Vec<A> g = simd::load<A>(grad + i, lanes) * scale;
      const Vec<A> mean = simd::load<A>(m + i, lanes) * b1 + g * c1;
      const Vec<A> square = simd::load<A>(v + i, lanes) * b2 + g * g * c2;
      simd::store<A>(m + i, mean, lanes);
      simd::store<A>(v + i, square, lanes);
      const Vec<A> update = rate * mean / (simd::sqrt(square) * unbias + eps);
      simd::store<A>(param + i, simd::load<A>(param + i, lanes) * keep - update, lanes);
    });
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const AdamW& a) {
  if (a.param.dtype == DType::f64) return step<double>(ctx, a);
  step<float>(ctx, a);
}

}  // namespace qtrain::ops
