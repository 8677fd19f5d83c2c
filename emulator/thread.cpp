#include "emulator/thread.h"

#include <string>

#include "emulator/block.h"

namespace qtrain::emulation {

Index3 thread_index() {
  return current().index;
}
Index3 block_index() {
  return current().block->index();
}
Index3 block_extent() {
  return current().block->launch().extents.threads;
}
Index3 grid_extent() {
  return current().block->launch().extents.blocks;
}
unsigned lane() {
  return current().lane;
}
void fault(const char* what, Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  self.block->fault(self, what, place);
}
void require_capability(int least, const char* what, Place place) {
  const int have = settings().capability;
  if (have >= least) return;
  const Stay stay;
  const auto text = [](int c) { return std::to_string(c / 10) + "." + std::to_string(c % 10); };
  stay.fiber().block->fault(
      stay.fiber(), std::string(what) + " needs compute capability " + text(least) + ", the device has " + text(have),
      place);
}
void* shared_memory(std::size_t bytes, Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  const std::size_t have = self.block->launch().extents.shared_bytes;
  if (bytes > have)
    self.block->fault(
        self, "uses " + std::to_string(bytes) + " bytes of shared memory and was launched with " + std::to_string(have),
        place);
  return self.block->shared();
}
void barrier(Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  self.block->barrier(self, place);
}
int counting_barrier(int predicate, Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  return self.block->count(self, predicate, place);
}
void yield() {
  const Stay stay;
  Fiber& self = stay.fiber();
  self.block->yield(self);
}
void exchange(std::uint32_t mask, const ExchangeCall& call, Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  self.block->exchange(self, mask, call, place);
}

}  // namespace qtrain::emulation
