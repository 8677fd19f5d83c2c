#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// act(g) = g * s(g), where s is the logistic function of an odd polynomial z: 1 / (1 + e^-z(g)).
enum class Activation : std::uint8_t {
  silu,       ///< z = g (Llama, Qwen, Granite)
  gelu_tanh,  ///< z = 2 sqrt(2/pi) (g + 0.044715 g^3), as gelu(approximate="tanh") of PyTorch (Gemma)
};

/// The layout of gate and up in a row of one tensor [T, 2 F].
enum class GluOrder : std::uint8_t {
  halves,  ///< F gates, then F ups (Phi-3)
  pairs,   ///< gate and up interleaved (gpt-oss), always with a limit
};

/// y = up * act(gate), a gated linear unit (SwiGLU, GeGLU: Shazeer 2020); all [T, F].
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
/// Glu with gate and up in one tensor: y [T, F], x [T, 2 F]. Pairs use silu, a limit > 0 and alpha. `largest` f32 [T],
/// if given: the largest magnitude of each row of y, or NaN if there is one, for a GEMM in FP8 (kernels/fp8.h).
/// y_stride, for halves without `largest`: elements from one row of y to the next; 0 means F.
struct PackedGlu {
  Tensor y;
  ConstTensor x;
  GluOrder order = GluOrder::halves;
  Activation activation = Activation::silu;
  double alpha = 1, limit = 0;
  Tensor largest = {};
  std::int64_t y_stride = 0;

  std::int64_t y_step() const { return y_stride == 0 ? y.shape[-1] : y_stride; }
};
/// dx [T, 2 F] as x. Clamped values have no gradient; values exactly at the limit have one. dx may be x. `largest`, if
/// given: that of each row of a dx that is stored.
struct PackedGluGrad {
  Sink dx;
  ConstTensor dy, x;
  GluOrder order = GluOrder::halves;
  Activation activation = Activation::silu;
  double alpha = 1, limit = 0;
  Tensor largest = {};
};
void run_cpu(Ctx&, const Glu&);
void run_cuda(Ctx&, const Glu&);
void run_cpu(Ctx&, const GluGrad&);
void run_cuda(Ctx&, const GluGrad&);
void run_cpu(Ctx&, const PackedGlu&);
void run_cuda(Ctx&, const PackedGlu&);
void run_cpu(Ctx&, const PackedGluGrad&);
void run_cuda(Ctx&, const PackedGluGrad&);

inline void glu(Ctx& ctx, const Glu& a) {
  check(a.y.numel() == a.gate.numel() && a.gate.numel() == a.up.numel(), "glu: shapes differ");
  dispatch(ctx, a);
}
inline void glu_grad(Ctx& ctx, const GluGrad& a) {
  check(a.dy.numel() == a.gate.numel() && a.gate.numel() == a.up.numel(), "glu_grad: shapes differ");
  dispatch(ctx, a);
}
template <class Op>
void check_packed_glu(const Op& a, const Shape& y, const Shape& x) {
  check(y.numel() * 2 == x.numel() && x[-1] == 2 * y[-1], "packed_glu: x is [T, 2 F] and y [T, F]");
  const bool limited = a.limit > 0 && a.activation == Activation::silu;
  check(!a.largest || a.largest.numel() == y.rows(), "packed_glu: another number of largest magnitudes");
  check(a.order == GluOrder::pairs ? limited : a.limit == 0, "packed_glu: pairs have silu and a limit, halves none");
}
inline void packed_glu(Ctx& ctx, const PackedGlu& a) {
  check_packed_glu(a, a.y.shape, a.x.shape);
  check(a.y_step() >= a.y.shape[-1], "packed_glu: rows of y overlap");
  check(a.y_stride == 0 || (a.order == GluOrder::halves && !a.largest), "packed_glu: no distance between rows of y");
  dispatch(ctx, a);
}
inline void packed_glu_grad(Ctx& ctx, const PackedGluGrad& a) {
  if (!a.dx.wanted()) return;
  check(a.dx.t.numel() == a.x.numel(), "packed_glu_grad: shapes differ");
  check(!a.largest || !a.dx.adds(), "packed_glu_grad: the largest magnitudes of what is stored");
  check_packed_glu(a, a.dy.shape, a.x.shape);
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
