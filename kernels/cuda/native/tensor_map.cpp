#include "kernels/cuda/native/target/tensor_map.h"

#include <dlfcn.h>

#include <string>

#include "core/error.h"
#include "core/os/shared_library.h"

namespace qtrain::target {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// The driver's function; programs start without a driver, so they are not linked to it.
Encode encoder() {
  const SharedLibrary driver = open_shared_library("libcuda.so.1");
  void* const found = driver.handle ? dlsym(driver.handle, "cuTensorMapEncodeTiled") : nullptr;
  if (!found)
    fail(ErrorKind::usage, {.cause = "the driver cannot describe tensors (cuTensorMapEncodeTiled)",
                            .remedy = "install a driver of CUDA 12 or newer"});
  return reinterpret_cast<Encode>(found);
}

}  // namespace

TensorMap tensor_map_of(const BoxedTensor& tensor) {
  static const Encode encode = encoder();
  cuuint64_t extents[3], strides[2];
  cuuint32_t box[3];
  constexpr cuuint32_t kDense[3] = {1, 1, 1};
  for (int i = 0; i < 3; ++i) {
    extents[i] = static_cast<cuuint64_t>(tensor.extents[i]);
    box[i] = static_cast<cuuint32_t>(tensor.box[i]);
    if (i < 2) strides[i] = static_cast<cuuint64_t>(tensor.strides[i]);
  }
  TensorMap map;
  const CUresult code = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void*>(tensor.data), extents,
                               strides, box, kDense, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS)
    fail(ErrorKind::internal, {.cause = "cuTensorMapEncodeTiled: error " + std::to_string(code)});
  return map;
}

}  // namespace qtrain::target
