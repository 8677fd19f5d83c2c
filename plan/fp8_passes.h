#pragma once
#include "model/transformer.h"

namespace qtrain {

/// GEMMs in FP8 run at this many times the rate of those in 16 bits: with one scale per matrix, by the data sheets of
/// all GPUs that have them; with scales for blocks, by what NVIDIA measured with cuBLAS 12.9 for large GEMMs on Hopper
/// ("Boosting Matrix Multiplication Speed and Flexibility with NVIDIA cuBLAS 12.9").
inline constexpr double kFp8Rate = 2, kFp8BlockRate = 1.75;

/// GEMMs in FP8 (kernels/fp8.h), and what prepares their operands.
struct Fp8Pass {
  double flops = 0;         ///< per token
  double bytes = 0;         ///< per token, to encode x or dy
  double weight_bytes = 0;  ///< to expand, encode or transpose the weights
  double launches = 0;      ///< of the kernels that do so
};
struct Fp8Passes {
  Fp8Pass forward, backward;
  double rate = kFp8Rate;  ///< relative to 16 bits
};
/// Those of a block, all 0 if the model does not multiply in FP8.
Fp8Passes fp8_passes(const Transformer& model);

}  // namespace qtrain
