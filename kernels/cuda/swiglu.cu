#include "kernels/swiglu.h"

#include "kernels/cuda/elements.cuh"

namespace qtrain::ops {
namespace {

template <class T>
__device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + exp_for<T>(-x));
}

template <class T>
struct Forward {
  T* y;
  const T *gate, *up;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float g[N], u[N];
    load_floats(g, gate + i);
    load_floats(u, up + i);
#pragma unroll
    for (int j = 0; j < N; ++j) u[j] *= g[j] * sigmoid<T>(g[j]);
    Target<T>{y}.template put_pack<N>(i, u);
  }
};

/// All inputs of an element are read before its gradients are written: dgate and dup may be any of the inputs.
template <class T>
struct Backward {
  Target<T> dgate, dup;
  const T *dy, *gate, *up;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float d[N], g[N], u[N];
    load_floats(d, dy + i);
    load_floats(g, gate + i);
    load_floats(u, up + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float s = sigmoid<T>(g[j]), slope = s * (1.0f + g[j] * (1.0f - s));
      u[j] *= d[j] * slope;
      d[j] *= g[j] * s;
    }
    if (dup.data) dup.template put_pack<N>(i, d);
    if (dgate.data) dgate.template put_pack<N>(i, u);
  }
};

}  // namespace

void run_cuda(Ctx& ctx, const SwiGlu& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() {
    const Forward<T> body{.y = a.y.as<T>(), .gate = a.gate.as<T>(), .up = a.up.as<T>()};
    dispatch_packs<T>(aligned<T>(body.y, body.gate, body.up),
                      [&]<int N>() { launch_elements<N>(ctx, "swiglu", a.y.numel(), body); });
  });
}

void run_cuda(Ctx& ctx, const SwiGluGrad& a) {
  dispatch_storage(a.dy.dtype, [&]<class T>() {
    const Backward<T> body{.dgate = target_of<T>(a.dgate),
                           .dup = target_of<T>(a.dup),
                           .dy = a.dy.as<T>(),
                           .gate = a.gate.as<T>(),
                           .up = a.up.as<T>()};
    dispatch_packs<T>(aligned<T>(body.dgate.data, body.dup.data, body.dy, body.gate, body.up),
                      [&]<int N>() { launch_elements<N>(ctx, "swiglu_grad", a.dy.numel(), body); });
  });
}

}  // namespace qtrain::ops
