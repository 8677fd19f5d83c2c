#include "kernels/adamw.h"

#include "kernels/cuda/elements.cuh"

namespace qtrain::ops {
namespace {

struct Step {
  float *param, *m, *v;
  const float* grad;
  const double *control, *factor;
  float b1, c1, b2, c2, eps;
  double decay;

  template <int N>
  __device__ void at(std::int64_t i) const {
    if (factor[1] == 0) return;
    const double lr = control[0];
    const float scale = static_cast<float>(factor[0]), keep = static_cast<float>(1 - lr * decay);
    const float rate = static_cast<float>(lr / control[1]), unbias = static_cast<float>(1 / sqrt(control[2]));
    float p[N], g[N], mean[N], square[N];
    load_floats(p, param + i);
    load_floats(g, grad + i);
    load_floats(mean, m + i);
    load_floats(square, v + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      g[j] *= scale;
      mean[j] = mean[j] * b1 + g[j] * c1;
      square[j] = square[j] * b2 + g[j] * g[j] * c2;
      p[j] = p[j] * keep - rate * mean[j] / (sqrtf(square[j]) * unbias + eps);
    }
    Target<float>{m}.put_pack<N>(i, mean);
    Target<float>{v}.put_pack<N>(i, square);
    Target<float>{param}.put_pack<N>(i, p);
  }
};

}  // namespace

void run_cuda(Ctx& ctx, const AdamW& a) {
  const Step body{.param = a.param.as<float>(),
                  .m = a.m.as<float>(),
                  .v = a.v.as<float>(),
                  .grad = a.grad.as<float>(),
                  .control = a.control.as<double>(),
                  .factor = a.factor.as<double>(),
                  .b1 = static_cast<float>(a.beta1),
                  .c1 = static_cast<float>(1 - a.beta1),
                  .b2 = static_cast<float>(a.beta2),
                  .c2 = static_cast<float>(1 - a.beta2),
                  .eps = static_cast<float>(a.eps),
                  .decay = a.decay};
  dispatch_packs<float>(aligned<float>(body.param, body.m, body.v, body.grad),
                        [&]<int N>() { launch_elements<N>(ctx, "adamw", a.param.numel(), body); });
}

}  // namespace qtrain::ops
