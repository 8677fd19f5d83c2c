#pragma once
#include <string>
#include <vector>

namespace qtrain {

/// Whether MatmulPrecision::bf16 uses bf16 dot products on this CPU, which it does only where they are faster than f32.
/// Otherwise it computes in f32 without rounding operands.
bool has_bf16_matmul();

/// "Intel(R) Xeon(R) Processor"
std::string processor_name();

/// "Intel(R) Xeon(R) Processor, 2 threads, avx512"
std::string describe_cpu();

/// A vector extension that qtrain uses, whether this CPU has it, and the slowdown without it.
struct VectorUnit {
  std::string name;
  bool there;
  std::string cost;
};
std::vector<VectorUnit> vector_units();

}  // namespace qtrain
