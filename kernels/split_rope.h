#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Splits the queries, keys and values [T, (Hq + 2 Hkv) D] of one projection into three tensors and rotates them: q [T,
/// Hq, D] and k [T, Hkv, D] by the angles of their positions, v [T, Hkv, D] not. cos, sin [P, R/2] in f32 (f64 with f64
/// qkv) rotate the first R <= D elements of a head, in pairs (i, i + R/2); the others are copied. positions i32 [T],
/// all < P.
struct SplitRope {
  Tensor q, k, v;
  ConstTensor qkv, cos, sin, positions;
};
/// The gradient: dq and dk rotated back, and dv, concatenated.
struct SplitRopeGrad {
  Sink dqkv;
  ConstTensor dq, dk, dv, cos, sin, positions;
};
void run_cpu(Ctx&, const SplitRope&);
void run_cuda(Ctx&, const SplitRope&);
void run_cpu(Ctx&, const SplitRopeGrad&);
void run_cuda(Ctx&, const SplitRopeGrad&);

/// Numbers of tokens, query heads, and key or value heads, and elements per head.
struct SplitHeads {
  std::int64_t tokens, queries, keys, width;

  SplitHeads(const Shape& q, const Shape& k, const Shape& v, std::int64_t joined)
      : tokens(q[0]), queries(q[1]), keys(k[1]), width(q[2]) {
    check(q.rank == 3 && k == v && k[0] == tokens && k[2] == width && width % 2 == 0,
          "split_rope: q, k and v are [T, H, D]");
    check(joined == tokens * all() * width, "split_rope: qkv is [T, (Hq + 2 Hkv) D]");
  }
  std::int64_t all() const { return queries + 2 * keys; }
  void check_tables(const ConstTensor& cos, const ConstTensor& sin, const ConstTensor& positions) const {
    check(cos.shape == sin.shape && 2 * cos.shape[1] <= width, "split_rope: tables are [P, R/2], R at most D");
    check(positions.numel() == tokens, "split_rope: one position per token");
  }
};

inline void split_rope(Ctx& ctx, const SplitRope& a) {
  SplitHeads(a.q.shape, a.k.shape, a.v.shape, a.qkv.numel()).check_tables(a.cos, a.sin, a.positions);
  dispatch(ctx, a);
}
inline void split_rope_grad(Ctx& ctx, const SplitRopeGrad& a) {
  if (!a.dqkv.wanted()) return;
  SplitHeads(a.dq.shape, a.dk.shape, a.dv.shape, a.dqkv.t.numel()).check_tables(a.cos, a.sin, a.positions);
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
