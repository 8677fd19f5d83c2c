#include "core/nvtx.h"

#include <atomic>

#include "core/device/backend.h"

namespace qtrain::nvtx {
namespace {

std::atomic<bool> g_on{false};

}  // namespace

void start() {
  g_on = true;
}
bool is_on() {
  return g_on.load(std::memory_order_relaxed);
}

Range::Range(const char* name) {
  if (!is_on()) return;
  cuda::push_range(name);
  open_ = true;
}
Range::~Range() {
  if (open_) cuda::pop_range();
}

}  // namespace qtrain::nvtx
