#pragma once
#include "core/device.h"
#include "kernels/gemm.h"

namespace qtrain {

/// GPU memory for the GEMM library, independent of the model. It is allocated once, so that nothing is allocated during
/// a step and the choice of algorithms does not depend on free memory.
struct GemmWorkspaces {
  explicit GemmWorkspaces(Device device)
      : workspace(device, ops::gemm_workspace(cuda_info(device.index).major), "GEMM workspace"),
        trials(device, ops::kGemmTrialBytes, "GEMM autotuning") {}
  /// Total bytes on a GPU of this major compute capability.
  static std::size_t bytes(int major) { return ops::gemm_workspace(major) + ops::kGemmTrialBytes; }

  DeviceMemory workspace;
  DeviceMemory trials;  ///< for autotuning: results of accumulating GEMMs, and data that flushes the cache
};

}  // namespace qtrain
