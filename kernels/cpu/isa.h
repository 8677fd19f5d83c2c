#pragma once
#include <target/units.h>  // of x86/ or arm/: CpuIsa, kCpuIsas

#include "kernels/processor.h"

namespace qtrain {

/// The fastest one of this processor. bf16 dot products count only where they are faster than f32: on AMD since Zen 4
/// twice as fast; on Intel half as fast at best, where they exist at all (Sapphire Rapids: one in two cycles against
/// two f32 products in one); on Arm twice as fast. The environment variable QTRAIN_CPU_ISA (avx2, avx512, avx512_bf16;
/// neon, neon_bf16) names another one that the processor has, to measure and test it. Throws ErrorKind::usage for an
/// x86-64 processor without AVX2 and FMA, or another value.
CpuIsa cpu_isa();

/// What a processor has and which of it is fastest.
struct FoundIsa {
  CpuIsa best, fastest;
};
FoundIsa find_isa();

}  // namespace qtrain
