#pragma once
#include "kernels/gemm.h"
#include "kernels/gemm_choices.h"

/// GEMMs with cuBLASLt, on a GPU or with its stand-in under the execution harness.
namespace qtrain::cuda {

/// One GEMM, as ops::gemm on a GPU. K may be 0.
void run_gemm(Ctx& ctx, const ops::Gemm& g);
/// Allocates the memory for operands and biases that GEMMs convert.
void reserve_gemms(Ctx& ctx, const ops::GemmMemory& memory);
/// The algorithms that the GEMMs of a context use.
GemmChoices& choices_of_gemms(Ctx& ctx);

}  // namespace qtrain::cuda
