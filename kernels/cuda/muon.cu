#include "kernels/muon.h"

#include "kernels/cuda/elements.cuh"

namespace qtrain::ops {
namespace {

struct Momentum {
  float* buffer;
  Bf16* y;
  const float* grad;
  const double* factor;
  float momentum, taken;
  bool nesterov;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float g[N], b[N];
    load_floats(g, grad + i);
    load_floats(b, buffer + i);
    const float scale = static_cast<float>(factor[0]);
    const bool applied = factor[1] != 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      g[j] = applied ? g[j] * scale : 0.0F;
      if (applied) b[j] += taken * (g[j] - b[j]);
      g[j] = nesterov ? g[j] + momentum * (b[j] - g[j]) : b[j];
    }
    Target<float>{buffer}.put_pack<N>(i, b);
    Target<Bf16>{y}.put_pack<N>(i, g);
  }
};

struct Normalize {
  Bf16* x;
  const double* squares;
  float eps;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const float norm = to_float(from_float<Bf16>(static_cast<float>(sqrt(squares[0]))));
    const float divisor = norm > eps ? norm : eps;
    float v[N];
    load_floats(v, x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = v[j] / divisor;
    Target<Bf16>{x}.put_pack<N>(i, v);
  }
};

struct Scaled {
  float* y;
  const Bf16* x;
  float alpha;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float v[N];
    load_floats(v, x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] *= alpha;
    Target<float>{y}.put_pack<N>(i, v);
  }
};

struct Applied {
  float* param;
  const Bf16* x;
  const double *hyperparameters, *factor;
  double scale, decay;

  template <int N>
  __device__ void at(std::int64_t i) const {
    if (factor[1] == 0) return;
    const double lr = hyperparameters[0];
    const float keep = static_cast<float>(1 - lr * decay), rate = static_cast<float>(lr * scale);
    float p[N], v[N];
    load_floats(p, param + i);
    load_floats(v, x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) p[j] = p[j] * keep - rate * v[j];
    Target<float>{param}.put_pack<N>(i, p);
  }
};

}  // namespace

void run_cuda(Ctx& ctx, const MuonMomentum& a) {
  const Momentum body{.buffer = a.momentum_buffer.as<float>(),
                      .y = a.y.as<Bf16>(),
                      .grad = a.grad.as<float>(),
                      .factor = a.factor.as<double>(),
                      .momentum = static_cast<float>(a.momentum),
                      .taken = static_cast<float>(1 - a.momentum),
                      .nesterov = a.nesterov == Nesterov::yes};
  dispatch_packs<float>(aligned<float>(body.buffer, body.y, body.grad),
                        [&]<int N>() { launch_elements<N>(ctx, "muon_momentum", a.grad.numel(), body); });
}
void run_cuda(Ctx& ctx, const MuonNormalize& a) {
  const Normalize body{a.x.as<Bf16>(), a.squares.as<double>(), static_cast<float>(a.eps)};
  dispatch_packs<Bf16>(aligned<Bf16>(body.x),
                       [&]<int N>() { launch_elements<N>(ctx, "muon_normalize", a.x.numel(), body); });
}
void run_cuda(Ctx& ctx, const ScaledCopy& a) {
  const Scaled body{a.y.as<float>(), a.x.as<Bf16>(), static_cast<float>(a.alpha)};
  dispatch_packs<Bf16>(aligned<Bf16>(body.y, body.x),
                       [&]<int N>() { launch_elements<N>(ctx, "scaled_copy", a.x.numel(), body); });
}
void run_cuda(Ctx& ctx, const MuonApply& a) {
  const Applied body{.param = a.param.as<float>(),
                     .x = a.x.as<Bf16>(),
                     .hyperparameters = a.hyperparameters.as<double>(),
                     .factor = a.factor.as<double>(),
                     .scale = a.scale,
                     .decay = a.decay};
  dispatch_packs<float>(aligned<float>(body.param, body.x),
                        [&]<int N>() { launch_elements<N>(ctx, "muon_apply", a.x.numel(), body); });
}

}  // namespace qtrain::ops
