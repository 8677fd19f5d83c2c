#pragma once
#include <string>

namespace qtrain {

/// Whether MatmulPrecision::bf16 means bf16 dot products on this processor: only where they are faster than f32.
/// Elsewhere it computes in f32 without rounding operands.
bool has_bf16_matmul();

/// "Intel(R) Xeon(R) Processor, 2 threads, avx512"
std::string describe_cpu();

}  // namespace qtrain
