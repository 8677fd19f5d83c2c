#pragma once
#include <target/units.h>  // of x86/ or arm/: CpuIsa, kCpuIsas

#include "kernels/processor.h"

namespace qtrain {

/// The fastest vector extension of this CPU. bf16 dot products count only where they are faster than f32: on AMD since
/// Zen 4 they are twice as fast; on Intel at best half as fast, if they exist at all (Sapphire Rapids: one in two
/// cycles versus two f32 products per cycle); on Arm twice as fast. The environment variable QTRAIN_CPU_ISA (avx2,
/// avx512, avx512_bf16; neon, neon_bf16) limits it to another one that the CPU has, for measurements and tests. Throws
/// ErrorKind::usage for an x86-64 CPU without AVX2 and FMA, or another value.
CpuIsa cpu_isa();

/// The widest vector extension of this CPU, and the fastest one.
struct FoundIsa {
  CpuIsa best, fastest;
};
FoundIsa find_isa();

}  // namespace qtrain
