#include "kernels/adamw.h"

#include "kernels/cuda/optimizer_loops.cuh"

namespace qtrain::ops {
namespace {

struct AdamWRule {
  static constexpr int kStates = 2;
  const double *control, *factor;
  float b1, c1, b2, c2, eps;
  double decay;

  struct Step {
    float scale, keep, rate, unbias, b1, c1, b2, c2, eps;

    __device__ __forceinline__ float operator()(float param, float grad, float (&state)[kStates]) const {
      const float g = grad * scale;
      state[0] = state[0] * b1 + g * c1;
      state[1] = state[1] * b2 + g * g * c2;
      return param * keep - rate * state[0] / (sqrtf(state[1]) * unbias + eps);
    }
  };
  __device__ Step step() const {
    const double lr = control[0];
    return {static_cast<float>(factor[0]),
            static_cast<float>(1 - lr * decay),
            static_cast<float>(lr / control[1]),
            static_cast<float>(1 / sqrt(control[2])),
            b1,
            c1,
            b2,
            c2,
            eps};
  }
};

template <class Args>
AdamWRule rule_of(const Args& a) {
  return {.control = a.control.template as<double>(),
          .factor = a.factor.template as<double>(),
          .b1 = static_cast<float>(a.beta1),
          .c1 = static_cast<float>(1 - a.beta1),
          .b2 = static_cast<float>(a.beta2),
          .c2 = static_cast<float>(1 - a.beta2),
          .eps = static_cast<float>(a.eps),
          .decay = a.decay};
}

}  // namespace

void run_cuda(Ctx& ctx, const AdamW& a) {
  const ElementUpdate<AdamWRule> update{
      a.param.as<float>(), a.grad.as<float>(), {a.m.as<float>(), a.v.as<float>()}, rule_of(a)};
  update_elements(ctx, "adamw", update, a.param.numel());
}

void run_cuda(Ctx& ctx, const AdamW8bit& a) {
  const CodedUpdate<AdamWRule> update{
      a.param.as<float>(), a.grad.as<float>(), {coded_pointers(a.m), coded_pointers(a.v)}, rule_of(a)};
  update_blocks(ctx, "adamw_8bit", update, a.param.numel());
}

}  // namespace qtrain::ops
