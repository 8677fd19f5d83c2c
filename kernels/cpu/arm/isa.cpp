#include "kernels/cpu/isa.h"

#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <fstream>

#include "kernels/cpu/expand4.h"
#include "kernels/cpu/expand8.h"
#include "kernels/cpu/gemm_blocked.h"

namespace qtrain {

FoundIsa find_isa() {
  const bool bf16 = (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
  const CpuIsa best = bf16 ? CpuIsa::neon_bf16 : CpuIsa::neon;
  return {best, best};
}

/// Linux knows few processor names on Arm; machines with a device tree have a model name.
std::string processor_name() {
  std::ifstream model("/proc/device-tree/model");
  std::string name;
  if (std::getline(model, name, '\0') && !name.empty()) return name;
  return "aarch64 processor";
}

std::vector<VectorUnit> vector_units() {
  return {{"NEON", true, ""},
          {"NEON bfloat16 dot products", find_isa().best == CpuIsa::neon_bf16,
           "bf16 computes in float32 here; processors since Armv8.6 (Graviton3, Apple M2) have these dot products"}};
}

namespace ops {

const TileKernel& tile_kernel(MatmulPrecision precision) {
  return precision == MatmulPrecision::bf16 && cpu_isa() == CpuIsa::neon_bf16 ? kTileNeonBf16 : kTileF32;
}

const ExpandBlocks4* whole_blocks4(DType) {
  return nullptr;
}

ExpandRow8 whole_row8(DType) {
  return nullptr;
}

}  // namespace ops
}  // namespace qtrain
