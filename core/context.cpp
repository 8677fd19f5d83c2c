#include "core/context.h"

#include "core/device/backend.h"

namespace qtrain {

Ctx::Ctx(Device device, MatmulPrecision matmul, int threads)
    : device_(device),
      matmul_(matmul),
      pool_(std::make_unique<ThreadPool>(threads)),
      workspace_(Device{}, kWorkspaceBytes * static_cast<std::size_t>(pool_->size()), "workspace"),
      stream_(device) {
  if (device.kind == DeviceKind::cuda) scratch_ = DeviceMemory(device, kScratchBytes);
}

std::byte* Ctx::scratch(std::size_t bytes) {
  check(bytes <= scratch_.bytes(), "an op requests more scratch memory than there is");
  if (bytes > 0) cuda::forget(stream_.handle(), {scratch_.data(), bytes});
  return scratch_.data();
}

std::span<std::byte> Ctx::workspace(int worker) {
  return {workspace_.data() + kWorkspaceBytes * static_cast<std::size_t>(worker), kWorkspaceBytes};
}

}  // namespace qtrain
