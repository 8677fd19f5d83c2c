#include "emulator/target/tensor_map.h"

#include <string>

#include "core/error.h"
#include "emulator/device.h"

namespace qtrain::target {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 32, kMaxStride = std::int64_t{1} << 40;
constexpr int kMaxBox = 256, kElementBytes = 2, kAddressUnit = 16;

void require(bool holds, const std::string& what) {
  if (!holds) fail(ErrorKind::internal, {.cause = "cuTensorMapEncodeTiled: " + what});
}

}  // namespace

// The limits are those that the documentation of the driver gives for 128-byte swizzle without interleaving.
TensorMap tensor_map_of(const BoxedTensor& tensor) {
  require(emulation::is_device_address(tensor.data), "the address is not in device memory");
  require(reinterpret_cast<std::uintptr_t>(tensor.data) % kAddressUnit == 0, "the address is not a multiple of 16");
  TensorMap map{.made = TensorMap::kMade, .data = static_cast<const std::byte*>(tensor.data)};
  map.strides[0] = kElementBytes;
  for (int i = 0; i < 3; ++i) {
    require(tensor.extents[i] > 0 && tensor.extents[i] <= kMaxExtent, "an extent is not between 1 and 2^32");
    require(tensor.box[i] > 0 && tensor.box[i] <= kMaxBox, "an extent of the box is not between 1 and 256");
    map.extents[i] = tensor.extents[i];
    map.box[i] = tensor.box[i];
    if (i == 2) continue;
    require(tensor.strides[i] > 0 && tensor.strides[i] < kMaxStride && tensor.strides[i] % kAddressUnit == 0,
            "a stride is not a multiple of 16 below 2^40");
    map.strides[i + 1] = tensor.strides[i];
  }
  require(tensor.box[0] * kElementBytes == emulation::BoxCopy::kRowBytes,
          "rows of the box do not have 128 bytes, which is the only size that the harness supports");
  return map;
}

}  // namespace qtrain::target
