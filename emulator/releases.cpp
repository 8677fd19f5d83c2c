#include "emulator/releases.h"

#include <thread>
#include <utility>

#include "emulator/block.h"

namespace qtrain::emulation {
namespace {

/// A block that waits for one that begins later would wait forever. Blocks of other host threads run meanwhile.
constexpr unsigned kMaxWaits = 30'000'000;
/// A block may see what another has released late: when its other threads wait, or after so many loads.
constexpr unsigned kMaxLate = 100'000;

/// Whether other threads of the block could run, or a copy has landed for which they may wait.
bool others_run(Block& block, const Fiber& self) {
  return block.others_ready(self) || block.mbarriers().land(block);
}

}  // namespace

void Releases::store(int* p, int value, std::shared_ptr<const Released> released) {
  const std::lock_guard lock(mutex_);
  last_[p] = {.before = __atomic_load_n(p, __ATOMIC_RELAXED), .released = std::move(released)};
  __atomic_store_n(p, value, __ATOMIC_RELEASE);
}

Releases::Loaded Releases::load(const int* p) {
  const std::lock_guard lock(mutex_);
  const auto found = last_.find(p);
  const int value = __atomic_load_n(p, __ATOMIC_ACQUIRE);
  if (found == last_.end()) return {.value = value, .before = value, .released = nullptr};
  return {.value = value, .before = found->second.before, .released = found->second.released};
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
  Block& block = *self.block;
  auto [value, before, released] = block.launch().releases->load(p);
  if (released && released->block != block.number()) {
    if (!block.acquired().has(released) && others_run(block, self) && block.count_wait(p, before) < kMaxLate) {
      block.yield(self);
      return before;
    }
    block.acquired().add({.released = std::move(released), .thread = self.number, .epoch = self.epoch});
  }
  const unsigned times = block.count_wait(p, value);
  if (times > kMaxWaits) block.fault(self, "deadlock: waits for a value that no block stores", place);
  if (block.launch().releases->stopped()) block.fault(self, "another block has failed", place);
  if (times > 1 && others_run(block, self)) block.yield(self);
  std::this_thread::yield();
  return value;
}

}  // namespace qtrain::emulation
