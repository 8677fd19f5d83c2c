#pragma once
#include <string>
#include <vector>

namespace qtrain {

/// Whether MatmulPrecision::bf16 means bf16 dot products on this processor: only where they are faster than f32.
/// Elsewhere it computes in f32 without rounding operands.
bool has_bf16_matmul();

/// "Intel(R) Xeon(R) Processor"
std::string processor_name();

/// "Intel(R) Xeon(R) Processor, 2 threads, avx512"
std::string describe_cpu();

/// Vector units that matter here, whether this processor has them, and what it costs where it has not.
struct VectorUnit {
  std::string name;
  bool there;
  std::string cost;
};
std::vector<VectorUnit> vector_units();

}  // namespace qtrain
