#include "kernels/lion.h"

#include "kernels/cuda/optimizer_loops.cuh"

namespace qtrain::ops {
namespace {

struct LionRule {
  static constexpr int kStates = 1;
  const double *hyperparameters, *factor;
  float b1, c1, b2, c2;
  double decay;

  struct Step {
    float scale, keep, rate, b1, c1, b2, c2;

    __device__ __forceinline__ float operator()(float param, float grad, float (&state)[kStates]) const {
      const float g = grad * scale, direction = state[0] * b1 + g * c1;
      state[0] = state[0] * b2 + g * c2;
      return param * keep - (direction > 0 ? rate : direction < 0 ? -rate : 0.0F);
    }
  };
  __device__ Step step() const {
    const double lr = hyperparameters[0];
    return {static_cast<float>(factor[0]), static_cast<float>(1 - lr * decay), static_cast<float>(lr), b1, c1, b2, c2};
  }
};

template <class Args>
LionRule rule_of(const Args& a) {
  return {.hyperparameters = a.hyperparameters.template as<double>(),
          .factor = a.factor.template as<double>(),
          .b1 = static_cast<float>(a.beta1),
          .c1 = static_cast<float>(1 - a.beta1),
          .b2 = static_cast<float>(a.beta2),
          .c2 = static_cast<float>(1 - a.beta2),
          .decay = a.decay};
}

}  // namespace

void run_cuda(Ctx& ctx, const Lion& a) {
  const ElementUpdate<LionRule> update{
      a.param.as<float>(), a.grad.as<float>(), {a.m.as<float>()}, rule_of(a), weight_copy(a.copy)};
  update_elements(ctx, "lion", update, a.param.numel());
}

void run_cuda(Ctx& ctx, const Lion8bit& a) {
  const CodedUpdate<LionRule> update{
      a.param.as<float>(), a.grad.as<float>(), {coded_pointers(a.m)}, rule_of(a), weight_copy(a.copy)};
  update_blocks(ctx, "lion_8bit", update, a.param.numel());
}

}  // namespace qtrain::ops
