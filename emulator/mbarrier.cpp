#include "emulator/mbarrier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "emulator/block.h"
#include "emulator/memory.h"

namespace qtrain::emulation {
namespace {

constexpr std::uint32_t kMbarrierBytes = 8;
constexpr unsigned kMaxArrivals = (1u << 20) - 1, kMaxBytes = (1u << 20) - 1;
constexpr int kMinRegisters = 24, kMaxRegisters = 256, kRegisterUnit = 8, kGroupWarps = 4;
constexpr int kRegistersOfBlock = 65536;

std::string barrier_name(std::uint32_t at) {
  return "the mbarrier at byte " + std::to_string(at);
}
/// The offset of a barrier; faults if there cannot be one.
std::uint32_t offset_of(void* barrier, const char* what, Place place) {
  require_capability(90, what, place);
  check_shared(barrier, kMbarrierBytes, what, place);
  return shared_offset(barrier);
}
/// Checks that the initialization of the barrier happens before this use of it.
void watch_use(Block& block, std::uint32_t at, Place place) {
  watch_order(block.shared() + at, kMbarrierBytes, AccessKind::atomic, place);
}

}  // namespace

void Mbarriers::reset() {
  all_.clear();
  copies_.clear();
}

Mbarriers::Mbarrier& Mbarriers::find(Block& block, std::uint32_t at, const char* what, Place place) {
  const auto known = all_.find(at);
  if (known == all_.end())
    block.fault(current(), std::string(what) + ": uses " + barrier_name(at) + ", which has not been initialized",
                place);
  watch_use(block, at, place);
  return known->second;
}

void Mbarriers::init(Block& block, std::uint32_t at, unsigned arrivals, Place place) {
  Fiber& self = current();
  if (arrivals == 0 || arrivals > kMaxArrivals)
    block.fault(self, "initializes an mbarrier for " + std::to_string(arrivals) + " arrivals", place);
  if (all_.contains(at)) block.fault(self, "initializes " + barrier_name(at) + ", which is in use", place);
  std::byte* p = block.shared() + at;
  watch(p, kMbarrierBytes, AccessKind::write, place);
  mark(p, kMbarrierBytes, State::mbarrier);
  all_[at] = {.arrivals = arrivals, .pending = arrivals};
}

void Mbarriers::invalidate(Block& block, std::uint32_t at, Place place) {
  const Mbarrier& b = find(block, at, "mbarrier.inval", place);
  if (!b.waiting.empty() || b.bytes != 0)
    block.fault(current(), "invalidates " + barrier_name(at) + ", which threads or copies still use", place);
  all_.erase(at);
  std::byte* p = block.shared() + at;
  mark(p, kMbarrierBytes, State::uninitialized);
}

void Mbarriers::arrive(Block& block, std::uint32_t at, unsigned bytes, Place place) {
  Fiber& self = current();
  Mbarrier& b = find(block, at, "mbarrier.arrive", place);
  if (bytes > kMaxBytes)
    block.fault(self, "expects more bytes at an mbarrier than the 1,048,575 that it counts", place);
  if (b.pending == 0)
    block.fault(
        self,
        "arrives at " + barrier_name(at) + " more often than the " + std::to_string(b.arrivals) + " times of a phase",
        place);
  b.bytes += bytes;
  --b.pending;
  block.release_to(self, b.gathered);
  finish_if_complete(block, at, place);
}

void Mbarriers::finish_if_complete(Block& block, std::uint32_t at, Place place) {
  Mbarrier& b = all_.at(at);
  if (b.pending > 0 || b.bytes > 0) return;
  if (b.bytes < 0)
    block.fault(current(),
                "copies " + std::to_string(-b.bytes) + " bytes more than a phase of " + barrier_name(at) + " expects",
                place);
  ++b.phase;
  b.pending = b.arrivals;
  b.released = std::exchange(b.gathered, {});
  for (Fiber* f : b.waiting) block.resume(*f);
  b.waiting.clear();
}

bool Mbarriers::try_wait(Block& block, std::uint32_t at, unsigned parity, Place place) {
  Fiber& self = current();
  Mbarrier& b = find(block, at, "mbarrier.try_wait", place);
  if (parity > 1) block.fault(self, "waits for a parity other than 0 and 1", place);
  if (b.phase % 2 == parity) {
    if (settings().order == Order::random && (block.random() & 1)) {  // a wait may end early
      block.yield(self);
      return false;
    }
    b.waiting.push_back(&self);
    block.pause(self, "mbarrier.try_wait", place);
  }
  block.acquire(self, all_.at(at).released);
  return true;
}

void Mbarriers::start(Block& block, const BoxCopy& copy, std::uint32_t at, Place place) {
  Fiber& self = current();
  const Mbarrier& b = find(block, at, "cp.async.bulk.tensor", place);
  block.require_async_fence(self, block.shared() + at, kMbarrierBytes, place);
  copy.for_chunks([&](std::byte* to, const std::byte* from) {
    if (from) watch(from, BoxCopy::kChunkBytes, AccessKind::read, place);
    block.require_async_fence(self, to, BoxCopy::kChunkBytes, place);
    watch(to, BoxCopy::kChunkBytes, AccessKind::write, place);
    mark(to, BoxCopy::kChunkBytes, State::in_flight);
    block.note_async_write(to, BoxCopy::kChunkBytes);
  });
  copies_.push_back(
      {.copy = copy, .barrier = at, .phase = b.phase, .thread = self.number, .epoch = block.start_epoch(self)});
  if (!block.copies_land_at_once()) return;
  const Pending now = std::move(copies_.back());
  copies_.pop_back();
  complete(block, now);
}

bool Mbarriers::land(Block& block) {
  if (copies_.empty()) return false;
  const std::size_t n = settings().order == Order::random ? block.random() % copies_.size() : 0;
  const Pending p = std::move(copies_[n]);
  copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(n));
  complete(block, p);
  return true;
}

void Mbarriers::complete(Block& block, const Pending& p) {
  p.copy.for_chunks([](std::byte* to, const std::byte* from) {
    mark(to, BoxCopy::kChunkBytes, State::initialized);
    from ? std::memcpy(to, from, BoxCopy::kChunkBytes) : std::memset(to, 0, BoxCopy::kChunkBytes);
  });
  const auto known = all_.find(p.barrier);
  if (known == all_.end() || known->second.phase != p.phase)
    block.fault(current(),
                "leaves a copy without its phase of " + barrier_name(p.barrier) +
                    ", which expected fewer bytes than were copied",
                current().place);
  Mbarrier& b = known->second;
  b.bytes -= static_cast<std::int64_t>(p.copy.bytes());
  b.gathered.add(p.thread, p.epoch);
  finish_if_complete(block, p.barrier, current().place);
}

std::string Mbarriers::unfinished() const {
  if (!copies_.empty()) return "leaves the kernel with copies of boxes that nobody waited for";
  for (const auto& [at, b] : all_)
    if (b.bytes != 0)
      return "leaves the kernel while " + barrier_name(at) + " still expects " + std::to_string(b.bytes) + " bytes";
  return {};
}

std::string Mbarriers::lacking() const {
  std::string text;
  for (const auto& [at, b] : all_)
    if (!b.waiting.empty())
      text += "; phase " + std::to_string(b.phase) + " of " + barrier_name(at) + " lacks " + std::to_string(b.pending) +
              " arrivals and " + std::to_string(b.bytes) + " bytes";
  return text;
}

void RegisterShares::reset(std::size_t warps) {
  changes_.assign(warps, {});
}

void RegisterShares::change(Block& block, unsigned warp, const RegisterChange& change, Place place) {
  Fiber& self = current();
  const int warps = static_cast<int>(changes_.size());
  RegisterChange c = change;
  if (c.launched == 0)
    c.launched = std::min(kMaxRegisters - 1, kRegistersOfBlock / (warps * kWarpSize) / kRegisterUnit * kRegisterUnit);
  std::vector<RegisterChange>& mine = changes_[warp];
  const int before = mine.empty() ? c.launched : mine.back().count;
  if (c.count < kMinRegisters || c.count > kMaxRegisters || c.count % kRegisterUnit != 0)
    block.fault(self, "asks for " + std::to_string(c.count) + " registers, not a multiple of 8 between 24 and 256",
                place);
  if (c.raises ? c.count < before : c.count > before)
    block.fault(self,
                std::string(c.raises ? "raises" : "lowers") + " its " + std::to_string(before) + " registers to " +
                    std::to_string(c.count),
                place);
  mine.push_back(c);
}

std::string RegisterShares::unfinished() const {
  int used = 0, launched = 0;
  for (std::size_t w = 0; w < changes_.size(); ++w) {
    const auto &mine = changes_[w], &first = changes_[w / kGroupWarps * kGroupWarps];
    if (!std::ranges::equal(mine, first, {}, &RegisterChange::count, &RegisterChange::count))
      return "changes registers in other ways than warp " + std::to_string(w) + " of the same warpgroup";
    for (const auto& warp : changes_)
      if (!warp.empty()) launched = warp.back().launched;
    used += mine.empty() ? launched : mine.back().count;
  }
  const int have = launched * static_cast<int>(changes_.size());
  if (launched == 0 || used <= have) return {};
  return "deadlock: the warps of the block ask for " + std::to_string(used * kWarpSize) + " registers, and it has " +
         std::to_string(have * kWarpSize);
}

void init_mbarrier(void* barrier, unsigned arrivals, Place place) {
  const std::uint32_t at = offset_of(barrier, "mbarrier.init", place);
  const Stay stay;
  stay.fiber().block->mbarriers().init(*stay.fiber().block, at, arrivals, place);
}
void invalidate_mbarrier(void* barrier, Place place) {
  const std::uint32_t at = offset_of(barrier, "mbarrier.inval", place);
  const Stay stay;
  stay.fiber().block->mbarriers().invalidate(*stay.fiber().block, at, place);
}
void arrive_at_mbarrier(void* barrier, unsigned bytes, Place place) {
  const std::uint32_t at = offset_of(barrier, "mbarrier.arrive", place);
  const Stay stay;
  stay.fiber().block->mbarriers().arrive(*stay.fiber().block, at, bytes, place);
}
bool try_wait_mbarrier(void* barrier, unsigned parity, Place place) {
  const std::uint32_t at = offset_of(barrier, "mbarrier.try_wait", place);
  const Stay stay;
  return stay.fiber().block->mbarriers().try_wait(*stay.fiber().block, at, parity, place);
}

void copy_box(const BoxCopy& copy, void* barrier, Place place) {
  const std::uint32_t at = offset_of(barrier, "cp.async.bulk.tensor", place);
  const Stay stay;
  Fiber& self = stay.fiber();
  if (copy.map.made != TensorMap::kMade)
    self.block->fault(self, "copies a box of something that is not a tensor map", place);
  if (copy.at[0] % BoxCopy::kChunkElements != 0)
    self.block->fault(self, "copies a box that does not start at a chunk of 16 bytes, which is not supported", place);
  if (shared_offset(copy.to) % BoxCopy::kAtomBytes != 0)
    self.block->fault(self, "copies a box to a shared address that is not a multiple of 1024", place);
  for (std::size_t row = 0; row < copy.rows(); ++row)
    check_shared(copy.to + row * BoxCopy::kRowBytes, BoxCopy::kRowBytes, "cp.async.bulk.tensor", place);
  self.place = place;
  self.block->mbarriers().start(*self.block, copy, at, place);
}

namespace {

struct RegisterVisit {
  Fiber* fiber;
  RegisterChange change;
  Place place;
};
void act_change(void* const* arguments, std::uint32_t) {
  const auto& v = *static_cast<RegisterVisit*>(arguments[0]);
  v.fiber->block->registers().change(*v.fiber->block, v.fiber->warp, v.change, v.place);
}

}  // namespace

void change_registers(const RegisterChange& change, Place place) {
  require_capability(90, "setmaxnreg", place);
  const Stay stay;
  RegisterVisit v{.fiber = &stay.fiber(), .change = change, .place = place};
  whole_warp({.name = "setmaxnreg", .act = act_change, .argument = &v}, place);
}

}  // namespace qtrain::emulation
