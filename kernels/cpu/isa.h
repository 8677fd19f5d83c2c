#pragma once
#include <cstdint>

#include "kernels/processor.h"

namespace qtrain {

/// The vector units that the CPU kernels know, each including those before it.
enum class CpuIsa : std::uint8_t { avx2, avx512, avx512_bf16 };

/// The fastest one of this processor. bf16 dot products count only where they are faster than f32: on AMD since Zen 4
/// twice as fast; on Intel half as fast at best, where they exist at all (Sapphire Rapids: one in two cycles against
/// two f32 products in one). The environment variable QTRAIN_CPU_ISA (avx2, avx512, avx512_bf16) names another one that
/// the processor has, to measure and test it. Throws ErrorKind::usage for a processor without AVX2 and FMA or another
/// value.
CpuIsa cpu_isa();

}  // namespace qtrain
