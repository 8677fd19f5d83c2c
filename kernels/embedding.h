#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// A row index that refers to no row: pads batches to a fixed number of rows.
inline constexpr std::int32_t kNoRow = -1;

/// y[t] = scale * table[tokens[t]]; y [T, C], table [V, C] of any float dtype, tokens i32 [T] in [0, V). Rows are
/// scaled in f32 (f64 with f64) and rounded once (Gemma: sqrt(C), Granite: embedding_multiplier).
struct Embedding {
  Tensor y;
  ConstTensor table, tokens;
  double scale = 1;
};
/// dtable[v] (+)= scale * sum of dy[t] over the t with tokens[t] == v, in order of t; nothing for v == padding.
struct EmbeddingGrad {
  Sink dtable;
  ConstTensor dy, tokens;
  std::int64_t padding = -1;  ///< row without a gradient, as padding_idx of torch.nn.Embedding; -1: none
  double scale = 1;
};
/// y[i] = x[rows[i]], 0 where rows[i] is kNoRow; x [T, C], rows i32 [n].
struct GatherRows {
  Tensor y;
  ConstTensor x, rows;
};
/// y[rows[i]] = or += x[i]; rows are distinct except for kNoRow, whose x is dropped. With `store`, rows of y that are
/// not listed become 0.
struct ScatterRows {
  Sink y;
  ConstTensor x, rows;
};
void run_cpu(Ctx&, const Embedding&);
void run_cuda(Ctx&, const Embedding&);
void run_cpu(Ctx&, const EmbeddingGrad&);
void run_cuda(Ctx&, const EmbeddingGrad&);
void run_cpu(Ctx&, const GatherRows&);
void run_cuda(Ctx&, const GatherRows&);
void run_cpu(Ctx&, const ScatterRows&);
void run_cuda(Ctx&, const ScatterRows&);

inline void embedding(Ctx& ctx, const Embedding& a) {
  check(a.y.shape[-1] == a.table.shape[-1] && a.y.shape.rows() == a.tokens.numel(), "embedding: shapes differ");
  dispatch(ctx, a);
}
inline void embedding_grad(Ctx& ctx, const EmbeddingGrad& a) {
  if (a.dtable.wanted()) dispatch(ctx, a);
}
inline void gather_rows(Ctx& ctx, const GatherRows& a) {
  check(a.y.shape[-1] == a.x.shape[-1] && a.y.shape.rows() == a.rows.numel(), "gather_rows: shapes differ");
  dispatch(ctx, a);
}
inline void scatter_rows(Ctx& ctx, const ScatterRows& a) {
  check(a.y.t.shape[-1] == a.x.shape[-1] && a.x.shape.rows() == a.rows.numel(), "scatter_rows: shapes differ");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
