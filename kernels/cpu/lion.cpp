#include "kernels/lion.h"

#include "kernels/cpu/optimizer_loops.h"

namespace qtrain::ops {
namespace {

using simd::Vec;

template <class A>
struct LionStep {
  A scale, keep, b1, c1, b2, c2, rate;

  template <class Args>
  explicit LionStep(const Args& a)
      : scale(static_cast<A>(a.factor.template as<double>()[0])),
        b1(static_cast<A>(a.beta1)),
        c1(static_cast<A>(1 - a.beta1)),
        b2(static_cast<A>(a.beta2)),
        c2(static_cast<A>(1 - a.beta2)),
        rate(static_cast<A>(a.hyperparameters.template as<double>()[0])) {
    keep = static_cast<A>(1 - a.hyperparameters.template as<double>()[0] * a.decay);
  }

  Vec<A> operator()(Vec<A> param, Vec<A> grad, Lanes<A, 1>& state) const {
    Vec<A>& m = state[0];
    const Vec<A> g = grad * scale, direction = m * b1 + g * c1, up = simd::broadcast(rate), none{};
    m = m * b2 + g * c2;
    return param * keep - simd::select(direction > none, up, simd::select(direction < none, -up, none));
  }
};

template <class A>
void step(Ctx& ctx, const Lion& a) {
  const UpdateArrays<A, 1> arrays{a.param.as<A>(), a.grad.as<A>(), {a.m.as<A>()}};
  update_elements(ctx, a.param.numel(), arrays, LionStep<A>(a));
}

}  // namespace

void run_cpu(Ctx& ctx, const Lion& a) {
  if (a.factor.as<double>()[1] == 0) return;
  if (a.param.dtype == DType::f64) return step<double>(ctx, a);
  step<float>(ctx, a);
}

void run_cpu(Ctx& ctx, const Lion8bit& a) {
  if (a.factor.as<double>()[1] == 0) return;
  update_blocks(ctx, CodedUpdate<1>{a.param, a.grad, {a.m}}, LionStep<float>(a));
}

}  // namespace qtrain::ops
