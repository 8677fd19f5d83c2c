// GEMMs of the CUDA backend.
#include "kernels/gemm.h"

#include "kernels/gemm_library.h"

namespace qtrain {

void ops::run_cuda(Ctx& ctx, const Gemm& g) {
  cuda::run_gemm(ctx, g);
}

void ops::run_cuda(Ctx& ctx, const GemmMemory& memory) {
  cuda::reserve_gemms(ctx, memory);
}

GemmChoices& cuda::gemm_choices(Ctx& ctx) {
  return choices_of_gemms(ctx);
}

}  // namespace qtrain
