#pragma once
#include "kernels/cpu/expand4.h"

namespace qtrain::ops {

/// Indexed by Stores, for y of each type.
extern const ExpandBlocks4 kExpandF32Avx512[2], kExpandBf16Avx512[2], kExpandF16Avx512[2];

}  // namespace qtrain::ops
