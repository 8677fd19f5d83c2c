#include "kernels/sgd.h"

#include "kernels/cpu/optimizer_loops.h"

namespace qtrain::ops {
namespace {

using simd::Vec;

template <class A>
struct SgdStep {
  A scale, decay, rate, momentum, taken;
  Nesterov nesterov;

  explicit SgdStep(const Sgd& a)
      : scale(static_cast<A>(a.factor.as<double>()[0])),
        decay(static_cast<A>(a.decay)),
        rate(static_cast<A>(a.hyperparameters.as<double>()[0])),
        momentum(static_cast<A>(a.momentum)),
        taken(static_cast<A>(a.hyperparameters.as<double>()[1])),
        nesterov(a.nesterov) {}

  Vec<A> operator()(Vec<A> param, Vec<A> grad, Lanes<A, 0>&) const {
    return param - rate * (grad * scale + decay * param);
  }
  Vec<A> operator()(Vec<A> param, Vec<A> grad, Lanes<A, 1>& state) const {
    const Vec<A> g = grad * scale + decay * param;
    state[0] = momentum * state[0] + taken * g;
    return param - rate * (nesterov == Nesterov::yes ? g + momentum * state[0] : state[0]);
  }
};

template <class A>
void step(Ctx& ctx, const Sgd& a) {
  const std::int64_t n = a.param.numel();
  A* param = a.param.as<A>();
  const A* grad = a.grad.as<A>();
  if (a.momentum_buffer)
    update_elements(ctx, n, UpdateArrays<A, 1>{param, grad, {a.momentum_buffer.as<A>()}}, SgdStep<A>(a));
  else
    update_elements(ctx, n, UpdateArrays<A, 0>{param, grad, {}}, SgdStep<A>(a));
}

}  // namespace

void run_cpu(Ctx& ctx, const Sgd& a) {
  if (a.factor.as<double>()[1] == 0) return;
  if (a.param.dtype == DType::f64) return step<double>(ctx, a);
  step<float>(ctx, a);
}

}  // namespace qtrain::ops
