#include "kernels/cpu/gemm_few_rows.h"
#include "kernels/cpu/quantize4.h"

namespace qtrain::ops {
namespace {

template <class T>
WriteColumns writer(const Blocks4& w) {
  return [weights = Expansion<T>(w), K = w.shape[1]](void* to, const PanelRange& range) {
    T* y = static_cast<T*>(to);
    for (std::int64_t n = range.lane; n < range.lane + range.count; ++n, y += kWrittenDepth)
      weights.range(n * K + range.k, n * K + range.k + range.depth, y);
  };
}

}  // namespace

void run_cpu(Ctx& ctx, const Gemm4& g) {
  std::vector<FewRowsTerm> terms;
  terms.push_back({.rows = rows_of({.a = g.a}),
                   .columns = {},
                   .write = few_rows_type(ctx) == DType::bf16 ? writer<Bf16>(g.w) : writer<float>(g.w)});
  if (g.added.present()) terms.push_back(few_rows_term(g.added));
  gemm_few_rows(ctx, {.c = g.c, .a = {}, .b = {}, .alpha = g.alpha, .bias = g.bias}, terms);
}

}  // namespace qtrain::ops
