#pragma once
#include "kernels/cpu/gemm_tile.h"
#include "kernels/gemm.h"

namespace qtrain::ops {

/// The tile kernel of cpu_isa() for f32 operands, or for operands rounded to bf16 where the processor has that.
const TileKernel& tile_kernel(MatmulPrecision precision);

/// Products of f32 and bf16 matrices on the vector units of cpu_isa(), in packed panels.
void gemm_blocked(Ctx& ctx, const Gemm& g);

/// The same for a few rows times a transposed B ([N, K], as weights lie), which is read once and not packed.
inline constexpr std::int64_t kFewRows = 8;
void gemm_few_rows(Ctx& ctx, const Gemm& g);

}  // namespace qtrain::ops
