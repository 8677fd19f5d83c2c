#include "kernels/sgd.h"

#include "kernels/cuda/optimizer_loops.cuh"

namespace qtrain::ops {
namespace {

template <int States>
struct SgdRule {
  static constexpr int kStates = States;
  const double *hyperparameters, *factor;
  float momentum, decay;
  bool nesterov;

  struct Step {
    float scale, rate, taken, momentum, decay;
    bool nesterov;

    __device__ __forceinline__ float operator()(float param, float grad, float (&state)[1]) const {
      float g = grad * scale + decay * param;
      if constexpr (States == 1) {
        state[0] = momentum * state[0] + taken * g;
        g = nesterov ? g + momentum * state[0] : state[0];
      }
      return param - rate * g;
    }
  };
  __device__ Step step() const {
    return {static_cast<float>(factor[0]),
            static_cast<float>(hyperparameters[0]),
            static_cast<float>(hyperparameters[1]),
            momentum,
            decay,
            nesterov};
  }
};

template <int States>
void run(Ctx& ctx, const Sgd& a) {
  const SgdRule<States> rule{.hyperparameters = a.hyperparameters.as<double>(),
                             .factor = a.factor.as<double>(),
                             .momentum = static_cast<float>(a.momentum),
                             .decay = static_cast<float>(a.decay),
                             .nesterov = a.nesterov == Nesterov::yes};
  const ElementUpdate<SgdRule<States>> update{a.param.as<float>(),
                                              a.grad.as<float>(),
                                              {States == 1 ? a.momentum_buffer.as<float>() : nullptr},
                                              rule,
                                              weight_copy(a.copy)};
  update_elements(ctx, "sgd", update, a.param.numel());
}

}  // namespace

void run_cuda(Ctx& ctx, const Sgd& a) {
  if (a.momentum_buffer)
    run<1>(ctx, a);
  else
    run<0>(ctx, a);
}

}  // namespace qtrain::ops
