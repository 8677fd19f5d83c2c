#include "kernels/gemm.h"

#include "kernels/cpu/gemm_blocked.h"
#include "kernels/cpu/gemm_reference.h"

namespace qtrain::ops {

namespace {

bool reads_weights_as_stored(const Factors& f) {
  return f.transpose_a == Transpose::no && f.transpose_b == Transpose::yes;
}

void multiply_doubles(Ctx& ctx, const Gemm& g) {
  for (const Gemm& product : one_by_one(g))
    dispatch_float(g.c.t.dtype, [&]<class C>() { gemm_reference<double, double, C>(ctx, product); });
}

}  // namespace

void run_cpu(Ctx& ctx, const Gemm& g) {
  if (g.a.dtype == DType::f64) return multiply_doubles(ctx, g);
  for (const Gemm& product : one_by_one(g))
    for (const DType d : {product.a.dtype, product.b.dtype})
      check(d == DType::f32 || d == DType::bf16, "gemm: operands are f32 or bf16, or all f64");
  const bool few = g.c.t.shape[0] <= kFewRows && reads_weights_as_stored(g.first());
  if (!few) return gemm_blocked(ctx, g);
  for (const Gemm& product : one_by_one(g)) {
    if (reads_weights_as_stored(product.first()))
      gemm_few_rows(ctx, product);
    else
      gemm_blocked(ctx, product);
  }
}

}  // namespace qtrain::ops
