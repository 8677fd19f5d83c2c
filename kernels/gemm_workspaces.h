#pragma once
#include "core/device.h"
#include "kernels/gemm.h"

namespace qtrain {

/// Memory of a GPU that its library of GEMMs works in, whatever the model is: taken once, so that nothing is
/// allocated during a step, and what is chosen does not hang on what is free.
struct GemmWorkspaces {
  explicit GemmWorkspaces(Device device)
      : workspace(device, ops::gemm_workspace(cuda_info(device.index).major), "workspace of GEMMs"),
        trials(device, ops::kGemmTrialBytes, "trials of GEMMs") {}
  /// Of a GPU of this major compute capability.
  static std::size_t bytes(int major) { return ops::gemm_workspace(major) + ops::kGemmTrialBytes; }

  DeviceMemory workspace;
  DeviceMemory trials;  ///< sums of GEMMs that add to something, while they are tried
};

}  // namespace qtrain
