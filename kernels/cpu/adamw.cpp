#include "kernels/adamw.h"

#include "kernels/cpu/optimizer_loops.h"
#include "kernels/cpu/philox_lanes.h"

namespace qtrain::ops {
namespace {

using simd::Vec;
using simd::Words;

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
    const double* hyperparameters = a.hyperparameters.template as<double>();
    keep = static_cast<A>(1 - hyperparameters[0] * a.decay);
    rate = static_cast<A>(hyperparameters[0] / hyperparameters[1]);
    unbias = static_cast<A>(1 / std::sqrt(hyperparameters[2]));
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

/// Rounds eight values to bf16 stochastically, with 16 random bits each. Values that are not finite stay so.
simd::Halves narrow_at_random(Vec<float> v, Words random) {
  const Words bits = simd::bits_of(v), exponent = simd::all_words(0x7f800000);
  const Words finite = simd::above_signed(exponent, bits & exponent);
  return simd::narrow((bits + (random & finite)) >> 16);
}

void store_bits(Bf16* p, simd::Halves bits, auto lanes) {
  Bf16 part[simd::kLanes<float>];
  simd::store_halves(part, bits);
  std::copy_n(part, static_cast<int>(lanes), p);
}

/// At most kPhiloxWords elements, starting at `i`.
struct RoundedPart {
  std::int64_t i, count;
  const std::uint32_t* words;
};
void step_rounded(const AdamWBf16& a, const AdamWStep<float>& step, const RoundedPart& part) {
  Bf16 *param = a.param.as<Bf16>() + part.i, *m = a.m.as<Bf16>() + part.i, *v = a.v.as<Bf16>() + part.i;
  const float* grad = a.grad.as<float>() + part.i;
  simd::each<float>(part.count, [&](std::int64_t j, auto lanes) {
    Lanes<float, 2> state{simd::load<float>(m + j, lanes), simd::load<float>(v + j, lanes)};
    const Vec<float> p = step(simd::load<float>(param + j, lanes), simd::load<float>(grad + j, lanes), state);
    const Words random = simd::load_words(part.words + j);
    store_bits(param + j, narrow_at_random(p, random & simd::all_words(0xffff)), lanes);
    simd::store<float>(m + j, state[0], lanes);
    store_bits(v + j, narrow_at_random(state[1], random >> 16), lanes);
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const AdamWBf16& a) {
  if (a.factor.as<double>()[1] == 0) return;
  const AdamWStep<float> step(a);
  const double t = a.hyperparameters.as<double>()[3];
  for_ranges(ctx, a.param.numel(), kBlockSize, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t words[simd::kPhiloxWords];
    for (std::int64_t i = begin; i < end; i += simd::kPhiloxWords) {
      simd::philox_lanes(a.seed, a.stream, rounding_counter(t, a.first + i), words);
      step_rounded(a, step, {i, std::min<std::int64_t>(simd::kPhiloxWords, end - i), words});
    }
  });
}

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
