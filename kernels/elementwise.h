#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// y = a + scale * b, rounded once (Granite scales each branch that is added to the residual stream); same shapes and
/// dtypes. y may be a or b. The gradient of b is a Copy with the same scale.
struct Add {
  Tensor y;
  ConstTensor a, b;
  double scale = 1;
};
/// y = or += scale * x, converting between any two float dtypes (f64, f32, f16, bf16), rounding to nearest even.
struct Copy {
  Sink y;
  ConstTensor x;
  double scale = 1;
};
/// y = softcap * tanh(scale * x / softcap), or scale * x if softcap is 0: the logits as CrossEntropy sees them, for
/// decoding. Same dtypes; y may be x.
struct CapLogits {
  Tensor y;
  ConstTensor x;
  double scale = 1, softcap = 0;
};
/// Sets every element to `value`.
struct Fill {
  Tensor y;
  double value;
};
/// y = or += mask * x / (1 - p), mask_i = uniform(philox(seed[0], stream, i / 4)[i % 4]) >= p. seed: one i64 on the
/// device. Its gradient is the same op with the same seed and stream. y may be x with `store`.
struct Dropout {
  Sink y;
  ConstTensor x, seed;
  std::uint64_t stream;
  double p;
};
void run_cpu(Ctx&, const Add&);
void run_cuda(Ctx&, const Add&);
void run_cpu(Ctx&, const Copy&);
void run_cuda(Ctx&, const Copy&);
void run_cpu(Ctx&, const CapLogits&);
void run_cuda(Ctx&, const CapLogits&);
void run_cpu(Ctx&, const Fill&);
void run_cuda(Ctx&, const Fill&);
void run_cpu(Ctx&, const Dropout&);
void run_cuda(Ctx&, const Dropout&);

inline void add(Ctx& ctx, const Add& a) {
  check(a.y.numel() == a.a.numel() && a.a.numel() == a.b.numel(), "add: shapes differ");
  dispatch(ctx, a);
}
inline void copy(Ctx& ctx, const Copy& a) {
  if (!a.y.wanted()) return;
  check(a.y.t.numel() == a.x.numel(), "copy: shapes differ");
  dispatch(ctx, a);
}
inline void cap_logits(Ctx& ctx, const CapLogits& a) {
  check(a.y.numel() == a.x.numel() && a.y.dtype == a.x.dtype, "cap_logits: shapes or dtypes differ");
  check(a.softcap >= 0, "cap_logits: a softcap is positive, or 0 for none");
  dispatch(ctx, a);
}
inline void fill(Ctx& ctx, const Fill& a) {
  dispatch(ctx, a);
}
inline void dropout(Ctx& ctx, const Dropout& a) {
  check(a.y.t.numel() == a.x.numel() && a.p >= 0 && a.p < 1, "dropout: shapes differ or p is not in [0, 1)");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
