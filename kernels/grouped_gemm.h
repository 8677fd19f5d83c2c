#pragma once
#include "kernels/gemm.h"

namespace qtrain::ops {

/// One GEMM per expert over its own rows, without padding or dropped tokens (as MegaBlocks, Gale et al. 2022): for
/// every expert e and its rows r in [offsets[e], offsets[e + 1]): C[r] = or += alpha * A[r] · op(B_e). Rows from
/// offsets[E] on are unchanged. A [R, K]; B [E, K, N], or [E, N, K] with transpose_b; C [R, N]; offsets i32 [E + 1]
/// from ExpertOrder, ascending from 0, read on the device. Strides as in Gemm. Types: all f64, or A and B any mix of
/// f32 and bf16 (CUDA: and f16) and C f32 or a 16-bit type. On a CPU a row of C has the same bits that ops::gemm
/// computes with that expert's matrix, for any other rows.
struct GroupedGemm {
  Sink c;
  ConstTensor a, b, offsets;
  Transpose transpose_b = Transpose::no;
  double alpha = 1;
  std::int64_t a_stride = 0, c_stride = 0;
};

/// The gradient of the experts' matrices: C_e = or += alpha * A[rows of e]^T · B[rows of e]; an expert without rows
/// gets zeros with `store`. A [R, M], B [R, N], C [E, M, N], offsets as in GroupedGemm. For B_e of GroupedGemm, with dC
/// [R, N] and A [R, K]: dB_e [N, K] (transpose_b) = {a: dC, b: A} and dB_e [K, N] = {a: A, b: dC}.
struct GroupedGemmGrad {
  Sink c;
  ConstTensor a, b, offsets;
  double alpha = 1;
  std::int64_t a_stride = 0, b_stride = 0;
};
void run_cpu(Ctx&, const GroupedGemm&);
void run_cuda(Ctx&, const GroupedGemm&);
void run_cpu(Ctx&, const GroupedGemmGrad&);
void run_cuda(Ctx&, const GroupedGemmGrad&);

inline void grouped_gemm(Ctx& ctx, const GroupedGemm& a) {
  if (!a.c.wanted()) return;
  const Shape &A = a.a.shape, &B = a.b.shape, &C = a.c.t.shape;
  const bool transposed = a.transpose_b == Transpose::yes;
  check(A.rank == 2 && B.rank == 3 && C.rank == 2 && a.offsets.numel() == B[0] + 1,
        "grouped_gemm: one matrix per expert");
  check(C[0] == A[0] && B[transposed ? 2 : 1] == A[1] && B[transposed ? 1 : 2] == C[1], "grouped_gemm: shapes differ");
  check((a.a_stride == 0 || a.a_stride >= A[1]) && (a.c_stride == 0 || a.c_stride >= C[1]),
        "grouped_gemm: rows overlap");
  if (C.numel() > 0) dispatch(ctx, a);
}
inline void grouped_gemm_grad(Ctx& ctx, const GroupedGemmGrad& a) {
  if (!a.c.wanted()) return;
  const Shape &A = a.a.shape, &B = a.b.shape, &C = a.c.t.shape;
  check(A.rank == 2 && B.rank == 2 && C.rank == 3 && a.offsets.numel() == C[0] + 1,
        "grouped_gemm_grad: one matrix per expert");
  check(A[0] == B[0] && A[1] == C[1] && B[1] == C[2], "grouped_gemm_grad: shapes differ");
  check((a.a_stride == 0 || a.a_stride >= A[1]) && (a.b_stride == 0 || a.b_stride >= B[1]),
        "grouped_gemm_grad: rows overlap");
  if (C.numel() > 0) dispatch(ctx, a);
}

}  // namespace qtrain::ops
