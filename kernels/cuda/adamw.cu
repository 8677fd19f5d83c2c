#include "kernels/adamw.h"

#include "core/rng.h"
#include "kernels/cuda/optimizer_loops.cuh"

namespace qtrain::ops {
namespace {

struct AdamWRule {
  static constexpr int kStates = 2;
  const double *hyperparameters, *factor;
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
    const double lr = hyperparameters[0];
    return {static_cast<float>(factor[0]),
            static_cast<float>(1 - lr * decay),
            static_cast<float>(lr / hyperparameters[1]),
            static_cast<float>(1 / sqrt(hyperparameters[2])),
            b1,
            c1,
            b2,
            c2,
            eps};
  }
};

template <class Args>
AdamWRule rule_of(const Args& a) {
  return {.hyperparameters = a.hyperparameters.template as<double>(),
          .factor = a.factor.template as<double>(),
          .b1 = static_cast<float>(a.beta1),
          .c1 = static_cast<float>(1 - a.beta1),
          .b2 = static_cast<float>(a.beta2),
          .c2 = static_cast<float>(1 - a.beta2),
          .eps = static_cast<float>(a.eps),
          .decay = a.decay};
}

/// Rounds x to bf16 stochastically, with 16 random bits. Values that are not finite stay so.
__device__ __forceinline__ Bf16 narrow_at_random(float x, std::uint32_t random) {
  const std::uint32_t bits = __float_as_uint(x);
  Bf16 y;
  y.bits = static_cast<std::uint16_t>(((bits & 0x7f800000u) == 0x7f800000u ? bits : bits + random) >> 16);
  return y;
}

struct RoundedUpdate {
  Bf16 *param, *m, *v;
  const float* grad;
  std::uint64_t seed, stream;
  std::int64_t first;
  AdamWRule rule;

  template <int N>
  __device__ __forceinline__ void at(std::int64_t i, const AdamWRule::Step& step) const {
    const auto words = philox(seed, stream, rounding_counter(rule.hyperparameters[3], first + i));
    float g[N], mean[N];
    Pack<Bf16, N> p = load_pack<N>(param + i), square = load_pack<N>(v + i);
    load_floats(g, grad + i);
    load_floats(mean, m + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const std::uint32_t word = words[static_cast<std::size_t>(N == 4 ? j : i % 4)];
      float state[2] = {mean[j], to_float(square.v[j])};
      p.v[j] = narrow_at_random(step(to_float(p.v[j]), g[j], state), word & 0xffffu);
      mean[j] = state[0];
      square.v[j] = narrow_at_random(state[1], word >> 16);
    }
    store_pack<N>(param + i, p);
    store_pack<N>(v + i, square);
    Target<Bf16>{m}.put_pack<N>(i, mean);
  }
};

}  // namespace

void run_cuda(Ctx& ctx, const AdamWBf16& a) {
  const RoundedUpdate body{.param = a.param.as<Bf16>(),
                           .m = a.m.as<Bf16>(),
                           .v = a.v.as<Bf16>(),
                           .grad = a.grad.as<float>(),
                           .seed = a.seed,
                           .stream = a.stream,
                           .first = a.first,
                           .rule = rule_of(a)};
  const bool packs = packable<float>(0, body.param, body.m, body.v, body.grad) == Packs::yes;
  launch_update(ctx, "adamw_bf16", body, a.param.numel(), packs);
}

void run_cuda(Ctx& ctx, const AdamW& a) {
  const ElementUpdate<AdamWRule> update{
      a.param.as<float>(), a.grad.as<float>(), {a.m.as<float>(), a.v.as<float>()}, rule_of(a), weight_copy(a.copy)};
  update_elements(ctx, "adamw", update, a.param.numel());
}

void run_cuda(Ctx& ctx, const AdamW8bit& a) {
  const CodedUpdate<AdamWRule> update{a.param.as<float>(),
                                      a.grad.as<float>(),
                                      {coded_pointers(a.m), coded_pointers(a.v)},
                                      rule_of(a),
                                      weight_copy(a.copy)};
  update_blocks(ctx, "adamw_8bit", update, a.param.numel());
}

}  // namespace qtrain::ops
