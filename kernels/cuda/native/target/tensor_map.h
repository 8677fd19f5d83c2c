#pragma once
#include <cuda.h>

#include <cstdint>

namespace qtrain::target {

/// How the units that copy boxes see a tensor of 16-bit elements, with the fastest dimension first: `extents` elements,
/// of which consecutive ones of the second and third dimension are `strides` bytes apart, and boxes of `box` elements,
/// whose rows have 128 bytes and are stored with 128-byte swizzle.
struct BoxedTensor {
  const void* data;
  std::int64_t extents[3], strides[2];
  int box[3];
};

/// The encoded form of it, which kernels take as a parameter that is const and __grid_constant__.
using TensorMap = CUtensorMap;

/// Throws an Error if the driver is too old or refuses the tensor.
TensorMap tensor_map_of(const BoxedTensor& tensor);

}  // namespace qtrain::target
