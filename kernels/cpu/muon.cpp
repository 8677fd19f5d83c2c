#include "kernels/muon.h"

#include "kernels/cpu/loops.h"
#include "kernels/elementwise.h"

namespace qtrain::ops {
namespace {

using simd::Vec;

/// Calls body(i, lanes) over [0, n) in parallel.
template <class Body>
void elements(Ctx& ctx, std::int64_t n, const Body& body) {
  for_ranges(ctx, n, kBlockSize, [&](std::int64_t begin, std::int64_t end) {
    simd::each<float>(end - begin, [&](std::int64_t j, auto lanes) { body(begin + j, lanes); });
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const MuonMomentum& a) {
  const double* factor = a.factor.as<double>();
  if (factor[1] == 0) return ops::fill(ctx, {.y = a.y, .value = 0});
  const auto scale = static_cast<float>(factor[0]), momentum = static_cast<float>(a.momentum),
             taken = static_cast<float>(1 - a.momentum);
  const float* grad = a.grad.as<float>();
  float* buffer = a.momentum_buffer.as<float>();
  Bf16* y = a.y.as<Bf16>();
  elements(ctx, a.grad.numel(), [&](std::int64_t i, auto lanes) {
    const Vec<float> g = simd::load<float>(grad + i, lanes) * scale, old = simd::load<float>(buffer + i, lanes);
    const Vec<float> b = old + taken * (g - old);
    simd::store<float>(buffer + i, b, lanes);
    simd::store<float>(y + i, a.nesterov == Nesterov::yes ? g + momentum * (b - g) : b, lanes);
  });
}

void run_cpu(Ctx& ctx, const MuonNormalize& a) {
  const auto norm = static_cast<float>(Bf16(static_cast<float>(std::sqrt(a.squares.as<double>()[0]))));
  const float divisor = std::max(norm, static_cast<float>(a.eps));
  Bf16* x = a.x.as<Bf16>();
  elements(ctx, a.x.numel(), [&](std::int64_t i, auto lanes) {
    simd::store<float>(x + i, simd::load<float>(x + i, lanes) / divisor, lanes);
  });
}

void run_cpu(Ctx& ctx, const ScaledCopy& a) {
  const auto alpha = static_cast<float>(a.alpha);
  const Bf16* x = a.x.as<Bf16>();
  float* y = a.y.as<float>();
  elements(ctx, a.x.numel(), [&](std::int64_t i, auto lanes) {
    simd::store<float>(y + i, simd::load<float>(x + i, lanes) * alpha, lanes);
  });
}

void run_cpu(Ctx& ctx, const MuonApply& a) {
  if (a.factor.as<double>()[1] == 0) return;
  const double lr = a.hyperparameters.as<double>()[0];
  const auto keep = static_cast<float>(1 - lr * a.decay), rate = static_cast<float>(lr * a.scale);
  const Bf16* x = a.x.as<Bf16>();
  float* param = a.param.as<float>();
  elements(ctx, a.param.numel(), [&](std::int64_t i, auto lanes) {
    const Vec<float> p = simd::load<float>(param + i, lanes), step = simd::load<float>(x + i, lanes);
    simd::store<float>(param + i, p * keep - rate * step, lanes);
  });
}

}  // namespace qtrain::ops
