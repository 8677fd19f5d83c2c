#pragma once
#include <functional>
#include <vector>

#include "kernels/cpu/gemm_pack.h"
#include "kernels/gemm.h"

namespace qtrain::ops {

/// The maximum number of rows here: columns are read once, and packed, if necessary, no further ahead than the level-1
/// cache holds. Each row has the same bits as in a larger gemm_blocked.
inline constexpr std::int64_t kFewRows = 8;
/// The maximum depth: packed f32 rows fill the workspace.
inline constexpr std::int64_t kMaxFewRowsDepth = static_cast<std::int64_t>(Ctx::kWorkspaceBytes) / (16 * 4);

/// Converts columns that are stored in another form than an operand: writes [range.count, range.depth] as
/// few_rows_type, rows kWrittenDepth apart, for at most kWrittenDepth values of k.
inline constexpr std::int64_t kWrittenDepth = 256;
using WriteColumns = std::function<void(void* to, const PanelRange& range)>;
/// The type in which columns are multiplied: bf16 if the tile kernel multiplies pairs, else f32.
DType few_rows_type(const Ctx& ctx);

/// Adds columns directly from their codes. `call` lacks only the codes; `call.ahead` is in columns, relative to
/// `column`. Returns the number of k processed; the rest is converted with WriteColumns.
struct CodePanel {
  const TileKernel& kernel;
  StreamCall call;
  std::int64_t column, rows;
};
using StreamColumns = std::function<std::int64_t(const CodePanel& panel)>;

/// One of the GEMMs that are summed.
struct FewRowsTerm {
  Operand rows;
  Operand columns;
  WriteColumns write = {};  ///< replaces `columns`
  StreamColumns stream = {};
};
FewRowsTerm few_rows_term(const Factors& f);

/// C = or += alpha * (the sum of the terms) + bias as specified by `g`, whose own operands are ignored.
void gemm_few_rows(Ctx& ctx, const Gemm& g, const std::vector<FewRowsTerm>& terms);

}  // namespace qtrain::ops
