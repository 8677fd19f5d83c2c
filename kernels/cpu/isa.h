#pragma once
#include <cstdint>
#include <string>

namespace qtrain {

/// The vector units that the CPU kernels know, each including those before it.
enum class CpuIsa : std::uint8_t { avx2, avx512, avx512_bf16 };

/// The best one that this processor and the environment variable QTRAIN_CPU_ISA (avx2, avx512 or avx512_bf16: use no
/// more than this, to measure and test the others) allow. Throws ErrorKind::usage for a processor without AVX2 and FMA
/// or another value of the variable.
CpuIsa cpu_isa();

/// Whether MatmulPrecision::bf16 means bf16 dot products here; elsewhere f32 is used, which is faster than emulation.
bool has_bf16_matmul();

/// "Intel(R) Xeon(R) Processor, 2 threads, avx512_bf16"
std::string describe_cpu();

}  // namespace qtrain
