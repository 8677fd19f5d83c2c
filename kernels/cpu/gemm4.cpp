#include "kernels/cpu/gemm_few_rows.h"
#include "kernels/cpu/quantize4.h"

namespace qtrain::ops {

void run_cpu(Ctx& ctx, const Gemm4& g) {
  const std::int64_t K = g.w.shape[1];
  const Expansion<float> weights(g.w);
  std::vector<FewRowsTerm> terms;
  terms.push_back({.rows = rows_of({.a = g.a}), .columns = {}, .write = [&](float* to, const PanelRange& range) {
                     for (std::int64_t n = range.lane; n < range.lane + range.count; ++n, to += kWrittenDepth)
                       weights.range(n * K + range.k, n * K + range.k + range.depth, to);
                   }});
  if (g.added.present()) terms.push_back(few_rows_term(g.added));
  gemm_few_rows(ctx, {.c = g.c, .a = {}, .b = {}, .alpha = g.alpha, .bias = g.bias}, terms);
}

}  // namespace qtrain::ops
