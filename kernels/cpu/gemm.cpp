#include "kernels/gemm.h"

#include "kernels/cpu/gemm_blocked.h"
#include "kernels/cpu/gemm_reference.h"

namespace qtrain::ops {

void run_cpu(Ctx& ctx, const Gemm& g) {
  if (g.a.dtype == DType::f64)
    return dispatch_float(g.c.t.dtype, [&]<class C>() { gemm_reference<double, double, C>(ctx, g); });
  for (const DType d : {g.a.dtype, g.b.dtype})
    check(d == DType::f32 || d == DType::bf16, "gemm: operands are f32 or bf16, or both f64");
  const bool weights_as_stored = g.transpose_a == Transpose::no && g.transpose_b == Transpose::yes;
  if (weights_as_stored && g.c.t.shape[0] <= kFewRows) return gemm_few_rows(ctx, g);
  gemm_blocked(ctx, g);
}

}  // namespace qtrain::ops
