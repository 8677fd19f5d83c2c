#include "core/context.h"

#include <cstdlib>
#include <new>

#include "core/device/backend.h"

namespace qtrain {

void Ctx::Free::operator()(std::byte* p) const {
  std::free(p);
}

Ctx::Ctx(Device device, MatmulPrecision matmul, int threads)
    : device_(device), matmul_(matmul), pool_(std::make_unique<ThreadPool>(threads)), stream_(device) {
  const std::size_t bytes = kWorkspaceBytes * static_cast<std::size_t>(pool_->size());
  workspace_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
  if (!workspace_) throw std::bad_alloc();
  if (device.kind == DeviceKind::cuda) scratch_ = DeviceMemory(device, kScratchBytes);
}

std::byte* Ctx::scratch(std::size_t bytes) {
  check(bytes <= scratch_.bytes(), "an op asks for more scratch than there is");
  if (bytes > 0) cuda::forget(stream_.handle(), {scratch_.data(), bytes});
  return scratch_.data();
}

std::span<std::byte> Ctx::workspace(int worker) {
  return {workspace_.get() + kWorkspaceBytes * static_cast<std::size_t>(worker), kWorkspaceBytes};
}

}  // namespace qtrain
