#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// act(g) = g * s(g) with s the logistic function of an odd polynomial z: 1 / (1 + e^-z(g)).
enum class Activation : std::uint8_t {
  silu,       ///< z = g (Llama, Qwen, Granite)
  gelu_tanh,  ///< z = 2 sqrt(2/pi) (g + 0.044715 g^3), as gelu(approximate="tanh") of PyTorch (Gemma)
};

/// y = up * act(gate), a gated linear unit (SwiGLU, GeGLU); all [T, F].
struct Glu {
  Tensor y;
  ConstTensor gate, up;
  Activation activation = Activation::silu;
};
/// dup (+)= dy * act(gate); dgate (+)= dy * up * s * (1 + gate * z'(gate) * (1 - s)). dgate and dup may be any of the
/// inputs.
struct GluGrad {
  Sink dgate, dup;
  ConstTensor dy, gate, up;
  Activation activation = Activation::silu;
};
void run_cpu(Ctx&, const Glu&);
void run_cuda(Ctx&, const Glu&);
void run_cpu(Ctx&, const GluGrad&);
void run_cuda(Ctx&, const GluGrad&);

inline void glu(Ctx& ctx, const Glu& a) {
  check(a.y.numel() == a.gate.numel() && a.gate.numel() == a.up.numel(), "glu: shapes differ");
  dispatch(ctx, a);
}
inline void glu_grad(Ctx& ctx, const GluGrad& a) {
  check(a.dy.numel() == a.gate.numel() && a.gate.numel() == a.up.numel(), "glu_grad: shapes differ");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
