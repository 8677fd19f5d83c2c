#pragma once
#include <functional>
#include <vector>

#include "kernels/cpu/gemm_pack.h"
#include "kernels/gemm.h"

namespace qtrain::ops {

/// Up to so many rows are multiplied here: columns are read once, and packed, where they have to be, no further ahead
/// than the first-level cache holds. Every row gets the bits that gemm_blocked gives it among many.
inline constexpr std::int64_t kFewRows = 8;
/// The longest sums: rows of f32, packed, fill the workspace.
inline constexpr std::int64_t kMaxFewRowsDepth = static_cast<std::int64_t>(Ctx::kWorkspaceBytes) / (16 * 4);

/// Columns that come in another form than an operand: writes [range.count, range.depth] as few_rows_type, rows
/// kWrittenDepth apart, for at most kWrittenDepth values of k.
inline constexpr std::int64_t kWrittenDepth = 256;
using WriteColumns = std::function<void(void* to, const PanelRange& range)>;
/// The type that columns are multiplied in: bf16 where pairs of it are, else f32.
DType few_rows_type(const Ctx& ctx);

/// Adds such columns from codes: `call` is all but those, `panel` the columns from which `call.ahead` is counted in
/// columns. Returns how many k are done, of which the rest is written.
struct CodePanel {
  const TileKernel& kernel;
  StreamCall call;
  std::int64_t column, rows;
};
using StreamColumns = std::function<std::int64_t(const CodePanel& panel)>;

/// One of the GEMMs whose sum is computed.
struct FewRowsTerm {
  Operand rows;
  Operand columns;
  WriteColumns write = {};  ///< instead of `columns`
  StreamColumns stream = {};
};
FewRowsTerm few_rows_term(const Factors& f);

/// C = or += alpha * (the sum of the terms) + bias as `g` says, whose own GEMMs are not looked at.
void gemm_few_rows(Ctx& ctx, const Gemm& g, const std::vector<FewRowsTerm>& terms);

}  // namespace qtrain::ops
