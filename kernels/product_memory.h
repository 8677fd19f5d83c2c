#pragma once
#include "core/device.h"
#include "kernels/gemm.h"

namespace qtrain {

/// Memory of a GPU that its library of products works in, whatever the model is: taken once, so that nothing is
/// allocated during a step, and what is chosen does not hang on what is free.
struct ProductMemory {
  explicit ProductMemory(Device device)
      : workspace(device, ops::gemm_workspace(cuda_info(device.index).major), "workspace of matrix products"),
        trials(device, ops::kGemmTrialBytes, "trials of matrix products") {}
  /// Of a GPU of this major compute capability.
  static std::size_t bytes(int major) { return ops::gemm_workspace(major) + ops::kGemmTrialBytes; }

  DeviceMemory workspace;
  DeviceMemory trials;  ///< sums of products that add to something, while they are tried
};

}  // namespace qtrain
