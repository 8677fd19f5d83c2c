#pragma once
#include <string_view>

#include "core/device.h"

namespace qtrain::target {

/// Whether kernels with the instructions of wgmma.cuh run on a GPU: their code is for sm_90a only. A build for other
/// architectures has the same kernels without these instructions.
inline bool has_warpgroups(Device device) {
  constexpr std::string_view kArchitectures = QTRAIN_CUDA_ARCHITECTURES;
  return cuda_info(device.index).major == 9 && kArchitectures.find("90a") != kArchitectures.npos;
}

}  // namespace qtrain::target
