#pragma once
#include <cstdint>

#include "emulator/tensor_map.h"

/// Counterpart of kernels/cuda/native/target/tensor_map.h, where everything is documented.
namespace qtrain::target {

struct BoxedTensor {
  const void* data;
  std::int64_t extents[3], strides[2];
  int box[3];
};

using TensorMap = emulation::TensorMap;

/// Refuses what cuTensorMapEncodeTiled refuses.
TensorMap tensor_map_of(const BoxedTensor& tensor);

}  // namespace qtrain::target
