#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// y = up * silu(gate), silu(g) = g / (1 + e^-g); all [T, F].
struct SwiGlu {
  Tensor y;
  ConstTensor gate, up;
};
/// dup (+)= dy * silu(gate); dgate (+)= dy * up * s * (1 + gate * (1 - s)), s = sigmoid(gate).
struct SwiGluGrad {
  Sink dgate, dup;
  ConstTensor dy, gate, up;
};
void run_cpu(Ctx&, const SwiGlu&);
void run_cuda(Ctx&, const SwiGlu&);
void run_cpu(Ctx&, const SwiGluGrad&);
void run_cuda(Ctx&, const SwiGluGrad&);

inline void swiglu(Ctx& ctx, const SwiGlu& a) {
  check(a.y.numel() == a.gate.numel() && a.gate.numel() == a.up.numel(), "swiglu: shapes differ");
  dispatch(ctx, a);
}
inline void swiglu_grad(Ctx& ctx, const SwiGluGrad& a) {
  check(a.dy.numel() == a.gate.numel() && a.gate.numel() == a.up.numel(), "swiglu_grad: shapes differ");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
