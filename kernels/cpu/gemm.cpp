#include "kernels/gemm.h"

#include "kernels/cpu/gemm_blocked.h"
#include "kernels/cpu/gemm_few_rows.h"
#include "kernels/cpu/gemm_reference.h"

namespace qtrain::ops {

namespace {

void multiply_doubles(Ctx& ctx, const Gemm& g) {
  for (const Gemm& gemm : one_by_one(g))
    dispatch_float(g.c.t.dtype, [&]<class C>() { gemm_reference<double, double, C>(ctx, gemm); });
}

/// The GEMMs of a sum, or nothing if gemm_few_rows does not support them.
std::vector<FewRowsTerm> few_rows_terms(const Gemm& g) {
  std::vector<FewRowsTerm> terms{few_rows_term(g.first())};
  std::int64_t depth = g.first().depth();
  for (const Factors& f : g.added)
    if (f.present()) {
      terms.push_back(few_rows_term(f));
      depth += f.depth();
    }
  if (g.c.t.shape[0] > kFewRows || depth > kMaxFewRowsDepth) return {};
  return terms;
}

}  // namespace

void run_cpu(Ctx& ctx, const Gemm& g) {
  if (g.a.dtype == DType::f64) return multiply_doubles(ctx, g);
  for (const Gemm& gemm : one_by_one(g))
    for (const DType d : {gemm.a.dtype, gemm.b.dtype})
      check(d == DType::f32 || d == DType::bf16, "gemm: operands are f32 or bf16, or all f64");
  if (const auto few = few_rows_terms(g); !few.empty()) return gemm_few_rows(ctx, g, few);
  gemm_blocked(ctx, g);
}

}  // namespace qtrain::ops
