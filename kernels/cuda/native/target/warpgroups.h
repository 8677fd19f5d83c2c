#pragma once
#include "core/device.h"

namespace qtrain::target {

/// Whether a GPU can run kernels with the instructions of wgmma.cuh, whose code is for sm_90a only. Builds for other
/// architectures contain these kernels without the instructions.
inline bool has_warpgroups(Device device) {
  return QTRAIN_HAS_SM_90A && cuda_info(device.index).major == 9;
}

}  // namespace qtrain::target
