#include "emulator/releases.h"

#include <thread>
#include <utility>

#include "emulator/block.h"

namespace qtrain::emulation {
namespace {

/// A block that waits for one that begins later would wait forever. Blocks of other host threads run meanwhile.
constexpr unsigned kMaxWaits = 30'000'000;

}  // namespace

void Releases::store(int* p, int value, std::shared_ptr<const Released> released) {
  const std::lock_guard lock(mutex_);
  last_[p] = std::move(released);
  __atomic_store_n(p, value, __ATOMIC_RELEASE);
}

Releases::Loaded Releases::load(const int* p) {
  const std::lock_guard lock(mutex_);
  const auto found = last_.find(p);
  return {__atomic_load_n(p, __ATOMIC_ACQUIRE), found == last_.end() ? nullptr : found->second};
}

void store_release(int* p, int value, Place place) {
  const Stay stay;
  watch(p, sizeof(int), AccessKind::atomic, place);
  Fiber& self = stay.fiber();
  Block& block = *self.block;
  auto released = std::make_shared<Released>(static_cast<std::uint32_t>(block.number()));
  block.release_to(self, released->before);
  block.launch().releases->store(p, value, std::move(released));
}

int load_acquire(const int* p, Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  watch(p, sizeof(int), AccessKind::atomic, place);
  auto [value, released] = self.block->launch().releases->load(p);
  if (released && released->block != self.block->number())
    self.block->acquired().add({.released = std::move(released), .thread = self.number, .epoch = self.epoch});
  if (self.block->count_wait(p, value) > kMaxWaits)
    self.block->fault(self, "deadlock: waits for a value that no block stores", place);
  if (self.block->launch().releases->stopped()) self.block->fault(self, "another block has failed", place);
  std::this_thread::yield();
  return value;
}

}  // namespace qtrain::emulation
