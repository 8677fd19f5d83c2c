#pragma once
#include "kernels/cpu/expand8.h"

namespace qtrain::ops {

extern const ExpandRow8 kExpandRow8F32Avx512, kExpandRow8Bf16Avx512;

}  // namespace qtrain::ops
