#pragma once
#include "core/device.h"

namespace qtrain::target {

/// Whether kernels with the instructions of wgmma.cuh run on a GPU: their code is for sm_90a only. A build for other
/// architectures has the same kernels without these instructions.
inline bool has_warpgroups(Device device) {
  return QTRAIN_HAS_SM_90A && cuda_info(device.index).major == 9;
}

}  // namespace qtrain::target
