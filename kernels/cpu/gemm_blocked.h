#pragma once
#include "kernels/cpu/gemm_tile.h"
#include "kernels/gemm.h"

namespace qtrain::ops {

/// The tile kernel of cpu_isa() for f32 operands, or for operands rounded to bf16 if the CPU supports that.
const TileKernel& tile_kernel(MatmulPrecision precision);
/// The function for `rows` <= mr rows and `vectors` * lanes columns.
MultiplyTile tile_function(const TileKernel& kernel, std::int64_t rows, std::int64_t vectors);

/// GEMMs of f32 and bf16 matrices with the vector extension of cpu_isa(), in packed panels.
void gemm_blocked(Ctx& ctx, const Gemm& g);

}  // namespace qtrain::ops
