#include "core/context.h"

#include <cstdlib>
#include <new>

namespace qtrain {

void Ctx::Free::operator()(std::byte* p) const {
  std::free(p);
}

Ctx::Ctx(Device device, MatmulPrecision matmul, int threads)
    : device_(device), matmul_(matmul), pool_(std::make_unique<ThreadPool>(threads)) {
  const std::size_t bytes = kWorkspaceBytes * static_cast<std::size_t>(pool_->size());
  workspace_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
  if (!workspace_) throw std::bad_alloc();
}

std::span<std::byte> Ctx::workspace(int worker) {
  return {workspace_.get() + kWorkspaceBytes * static_cast<std::size_t>(worker), kWorkspaceBytes};
}

}  // namespace qtrain
