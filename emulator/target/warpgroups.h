#pragma once
#include "core/device.h"

/// Counterpart of kernels/cuda/native/target/warpgroups.h.
namespace qtrain::target {

inline bool has_warpgroups(Device device) {
  return cuda_info(device.index).major == 9;
}

}  // namespace qtrain::target
