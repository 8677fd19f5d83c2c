#include "kernels/cuda/glu_gate.cuh"

namespace qtrain::ops {
namespace {

template <class T, Activation K>
struct Forward {
  T* y;
  const T *gate, *up;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float g[N], u[N];
    load_floats(g, gate + i);
    load_floats(u, up + i);
#pragma unroll
    for (int j = 0; j < N; ++j) u[j] *= g[j] * DeviceGate<T, K>(g[j]).s;
    Target<T>{y}.template put_pack<N>(i, u);
  }
};

/// All inputs of an element are read before its gradients are written, so dgate and dup may be any of the inputs.
template <class T, Activation K>
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
      const DeviceGate<T, K> k(g[j]);
      u[j] *= d[j] * k.slope();
      d[j] *= g[j] * k.s;
    }
    if (dup.data) dup.template put_pack<N>(i, d);
    if (dgate.data) dgate.template put_pack<N>(i, u);
  }
};

template <class T, Activation K>
void forward(Ctx& ctx, const Glu& a) {
  const Forward<T, K> body{.y = a.y.as<T>(), .gate = a.gate.as<T>(), .up = a.up.as<T>()};
  dispatch_packs<T>(aligned<T>(body.y, body.gate, body.up),
                    [&]<int N>() { launch_elements<N>(ctx, "glu", a.y.numel(), body); });
}

template <class T, Activation K>
void backward(Ctx& ctx, const GluGrad& a) {
  const Backward<T, K> body{.dgate = target_of<T>(a.dgate),
                            .dup = target_of<T>(a.dup),
                            .dy = a.dy.as<T>(),
                            .gate = a.gate.as<T>(),
                            .up = a.up.as<T>()};
  dispatch_packs<T>(aligned<T>(body.dgate.data, body.dup.data, body.dy, body.gate, body.up),
                    [&]<int N>() { launch_elements<N>(ctx, "glu_grad", a.dy.numel(), body); });
}

}  // namespace

void run_cuda(Ctx& ctx, const Glu& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() {
    if (a.activation == Activation::silu) return forward<T, Activation::silu>(ctx, a);
    forward<T, Activation::gelu_tanh>(ctx, a);
  });
}
void run_cuda(Ctx& ctx, const GluGrad& a) {
  dispatch_storage(a.dy.dtype, [&]<class T>() {
    if (a.activation == Activation::silu) return backward<T, Activation::silu>(ctx, a);
    backward<T, Activation::gelu_tanh>(ctx, a);
  });
}

}  // namespace qtrain::ops
