#include "kernels/adamw.h"

#include "kernels/cpu/optimizer_loops.h"

namespace qtrain::ops {
namespace {

using simd::Vec;

template <class A>
struct AdamWStep {
  A scale, keep, b1, c1, b2, c2, rate, unbias, eps;

  template <class Args>
  explicit AdamWStep(const Args& a)
      : scale(static_cast<A>(a.factor.template as<double>()[0])),
        b1(static_cast<A>(a.beta1)),
        c1(static_cast<A>(1 - a.beta1)),
        b2(static_cast<A>(a.beta2)),
        c2(static_cast<A>(1 - a.beta2)),
        eps(static_cast<A>(a.eps)) {
    const double* control = a.control.template as<double>();
    keep = static_cast<A>(1 - control[0] * a.decay);
    rate = static_cast<A>(control[0] / control[1]);
    unbias = static_cast<A>(1 / std::sqrt(control[2]));
  }

  Vec<A> operator()(Vec<A> param, Vec<A> grad, Lanes<A, 2>& state) const {
    auto& [m, v] = state;
    const Vec<A> g = grad * scale;
    m = m * b1 + g * c1;
    v = v * b2 + g * g * c2;
    return param * keep - rate * m / (simd::sqrt(v) * unbias + eps);
  }
};

template <class A>
void step(Ctx& ctx, const AdamW& a) {
  const UpdateArrays<A, 2> arrays{a.param.as<A>(), a.grad.as<A>(), {a.m.as<A>(), a.v.as<A>()}};
  update_elements(ctx, a.param.numel(), arrays, AdamWStep<A>(a));
}

}  // namespace

void run_cpu(Ctx& ctx, const AdamW& a) {
  if (a.factor.as<double>()[1] == 0) return;
  if (a.param.dtype == DType::f64) return step<double>(ctx, a);
  step<float>(ctx, a);
}

void run_cpu(Ctx& ctx, const AdamW8bit& a) {
  if (a.factor.as<double>()[1] == 0) return;
  update_blocks(ctx, CodedUpdate<2>{a.param, a.grad, {a.m, a.v}}, AdamWStep<float>(a));
}

}  // namespace qtrain::ops
