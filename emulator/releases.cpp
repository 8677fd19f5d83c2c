#include "emulator/releases.h"

#include <thread>

#include "emulator/block.h"

namespace qtrain::emulation {
namespace {

/// A block that waits for one that begins later would wait forever. Blocks of other host threads run meanwhile.
constexpr unsigned kMaxWaits = 30'000'000;

}  // namespace

void Releases::store(int* p, int value, const Released& released) {
  const std::lock_guard lock(mutex_);
  last_[p] = released;
  __atomic_store_n(p, value, __ATOMIC_RELEASE);
}

int Releases::load(const int* p, Released& released) {
  const std::lock_guard lock(mutex_);
  if (const auto found = last_.find(p); found != last_.end()) released = found->second;
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

void store_release(int* p, int value, Place place) {
  const Stay stay;
  watch(p, sizeof(int), AccessKind::atomic, place);
  Block& block = *stay.fiber().block;
  block.launch().releases->store(p, value, block.released());
}

int load_acquire(const int* p, Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  watch(p, sizeof(int), AccessKind::atomic, place);
  Released released{.block = static_cast<std::uint32_t>(self.block->number())};
  const int value = self.block->launch().releases->load(p, released);
  if (released.block != self.block->number()) self.block->acquired().add(self.number, released);
  if (self.block->count_wait(p, value) > kMaxWaits)
    self.block->fault(self, "deadlock: waits for a value that no block stores", place);
  if (self.block->launch().releases->stopped()) self.block->fault(self, "another block has failed", place);
  std::this_thread::yield();
  return value;
}

}  // namespace qtrain::emulation
