#include "emulator/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "emulator/block.h"

extern "C" {
extern const char __executable_start[], _end[];  // defined by the linker
}

namespace qtrain::emulation {
namespace {

struct LastAccess {
  std::uint32_t serial, block;
  unsigned thread;
  std::uint16_t epoch;
};

std::uint64_t pack(const LastAccess& r) {
  return std::uint64_t{r.serial} << (kBlockBits + kThreadBits + kEpochBits) |
         std::uint64_t{r.block} << (kThreadBits + kEpochBits) | std::uint64_t{r.thread} << kEpochBits | r.epoch;
}
LastAccess unpack(std::uint64_t cell) {
  return {.serial = static_cast<std::uint32_t>(cell >> (kBlockBits + kThreadBits + kEpochBits)),
          .block = static_cast<std::uint32_t>(cell >> (kThreadBits + kEpochBits)) & ((1u << kBlockBits) - 1),
          .thread = static_cast<unsigned>(cell >> kEpochBits) & ((1u << kThreadBits) - 1),
          .epoch = static_cast<std::uint16_t>(cell)};
}

template <const AccessRecords& R>
std::uint64_t* record_of(std::uintptr_t address) {
  return static_cast<std::uint64_t*>(at_address(R.base)) + (address - kDeviceBase) / R.unit;
}

std::string name_of(std::uintptr_t address) {
  return address >= kSharedBase ? "shared memory at byte " + std::to_string((address - kSharedBase) % kSharedStretch)
                                : std::string("device memory");
}
const char* verb(AccessKind kind) {
  return kind == AccessKind::read ? "reads " : kind == AccessKind::write ? "writes " : "updates ";
}

/// Whether the recorded access and a current one of `self` may happen concurrently.
bool races(const Fiber& self, const LastAccess& r, bool shared) {
  Block& block = *self.block;
  if (r.serial != block.launch().serial) return false;
  if (r.block != block.number())  // blocks use the shared memory one after another
    return !shared && !block.happened_in(r.block, self, r.thread, r.epoch);
  return r.epoch != Clocks::kLast && !block.happened(self, r.thread, r.epoch);
}

[[noreturn]] void report_race(Fiber& self, std::uintptr_t address, AccessKind kind, const LastAccess& r, Place place) {
  const bool other_block = r.block != self.block->number();
  self.block->fault(self,
                    std::string("race: ") + verb(kind) + name_of(address) + ", which " +
                        (other_block ? "block " + std::to_string(r.block) + " " : "") + "thread " +
                        std::to_string(r.thread) + " uses at the same time",
                    place);
}

/// The last launch with an access to a single byte. Most launches have none, and then need not check these records.
std::atomic<std::uint32_t> serial_of_bytes = 0;

/// An access that is compared with earlier ones and recorded.
struct CurrentAccess {
  Fiber& self;
  std::uintptr_t address;
  std::size_t bytes;
  AccessKind kind;
  Place place;
  std::uint64_t record;

  bool shared() const { return address >= kSharedBase; }
};

enum class Seen : std::uint8_t { writes, reads };
template <const AccessRecords& R, Seen S>
void judge_with(const CurrentAccess& a) {
  const std::uint64_t* records = record_of<R>(a.address);
  const std::size_t count = (a.bytes + R.unit - 1) / R.unit;
  for (std::size_t i = 0; i < count; ++i) {
    // Fast check: most records are of earlier launches or of the thread itself.
    const std::uint64_t last = __atomic_load_n(records + i, __ATOMIC_RELAXED);
    if ((last ^ a.record) >> (64 - kSerialBits) != 0 || last == a.record) continue;
    if (S == Seen::reads && !a.shared() && unpack(last).block == unpack(a.record).block) continue;
    if (races(a.self, unpack(last), a.shared()))
      report_race(a.self, a.address + R.unit * i, a.kind, unpack(last), a.place);
  }
}
template <const AccessRecords& R>
void keep_in(const CurrentAccess& a) {
  std::uint64_t* records = record_of<R>(a.address);
  for (std::size_t i = 0; i < (a.bytes + R.unit - 1) / R.unit; ++i)
    __atomic_store_n(records + i, a.record, __ATOMIC_RELAXED);
}

/// Compares an access with the records of writes and reads. In device memory, only reads by other blocks count, because
/// a lane may store a result of values that all lanes have read and passed on. Atomic updates there are not compared
/// with reads, because blocks may wait for a value that others update.
template <const AccessRecords& Writes, const AccessRecords& Reads>
void judge_with(const CurrentAccess& a) {
  judge_with<Writes, Seen::writes>(a);
  if (a.kind == AccessKind::write || (a.kind == AccessKind::atomic && a.shared())) judge_with<Reads, Seen::reads>(a);
}
template <const AccessRecords& Writes, const AccessRecords& Reads>
void keep_in(const CurrentAccess& a) {
  if (a.kind == AccessKind::write) keep_in<Writes>(a);
  if (a.kind == AccessKind::read) keep_in<Reads>(a);
}

void judge_races(Fiber& self, std::uintptr_t address, std::size_t bytes, AccessKind kind, Place place) {
  const std::uint32_t serial = self.block->launch().serial;
  const auto block = static_cast<std::uint32_t>(self.block->number());
  if (self.block->number() >= (1u << kBlockBits)) return;
  const std::uint64_t record = pack({.serial = serial, .block = block, .thread = self.number, .epoch = self.epoch});
  const CurrentAccess access{self, address, bytes, kind, place, record};
  judge_with<kWideWrites, kWideReads>(access);
  if (serial_of_bytes.load(std::memory_order_relaxed) == serial || bytes == 1)
    judge_with<kByteWrites, kByteReads>(access);
  if (bytes > 1) return keep_in<kWideWrites, kWideReads>(access);
  serial_of_bytes.store(serial, std::memory_order_relaxed);
  keep_in<kByteWrites, kByteReads>(access);
}

/// The state of a byte, with `untouched` resolved to uninitialized or fenced.
State settled(const State* s) {
  if (*s != State::untouched) return *s;
  const auto* p = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(s) - kStateBase + kDeviceBase);
  return is_allocated(p, 1) ? State::uninitialized : State::fenced;
}

[[noreturn]] void report_state(Fiber& self, std::uintptr_t address, AccessKind kind, State state, Place place) {
  const std::string where = verb(kind) + name_of(address);
  if (state == State::fenced)
    self.block->fault(self, "out of bounds: " + where + ", which is not part of any tensor", place);
  if (state == State::in_flight)
    self.block->fault(self, "too early: " + where + ", which a copy is still writing", place);
  if (state == State::mbarrier) self.block->fault(self, where + ", which is part of an mbarrier", place);
  self.block->fault(self, "uninitialized: " + where + ", which nothing has been written to", place);
}

void judge_states(Fiber& self, std::uintptr_t address, std::size_t bytes, AccessKind kind, Place place) {
  State* s = state_of(reinterpret_cast<void*>(address));
  if (kind == AccessKind::write && *s == State::untouched && is_allocated(reinterpret_cast<void*>(address), bytes))
    std::fill_n(s, bytes, State::initialized);
  for (std::size_t i = 0; i < bytes; ++i) {
    const State state = settled(s + i);
    const bool allowed = state == State::initialized || (kind == AccessKind::write && state == State::uninitialized);
    if (!allowed) report_state(self, address + i, kind, state, place);
  }
  if (kind == AccessKind::write) std::fill_n(s, bytes, State::initialized);
}

/// Whether as many states as `Word` has bytes are all `initialized`.
template <class Word>
bool all_initialized_in(const State* s) {
  constexpr Word kAll = static_cast<Word>(0x0202020202020202u);
  static_assert(static_cast<int>(State::initialized) == 2);
  Word word;
  std::memcpy(&word, s, sizeof word);
  return word == kAll;
}
/// Fast check for the usual sizes.
bool all_initialized(std::uintptr_t address, std::size_t bytes) {
  const State* s = state_of(reinterpret_cast<const void*>(address));
  switch (bytes) {
    case 2: return all_initialized_in<std::uint16_t>(s);
    case 4: return all_initialized_in<std::uint32_t>(s);
    case 8: return all_initialized_in<std::uint64_t>(s);
    case 16: return all_initialized_in<std::uint64_t>(s) && all_initialized_in<std::uint64_t>(s + 8);
    default: return std::all_of(s, s + bytes, [](State x) { return x == State::initialized; });
  }
}

/// Checks an access against copies, fills and GEMMs of other streams.
void judge_streams(Fiber& self, std::uintptr_t address, std::size_t bytes, AccessKind kind, Place place) {
  for (const NamedTouch& other : self.block->launch().beside)
    if ((other.touch.writes || kind != AccessKind::read) &&
        overlaps(other.touch, reinterpret_cast<const void*>(address), bytes))
      self.block->fault(self,
                        std::string("race of streams: ") + verb(kind) + "device memory that '" + other.name +
                            "' of another stream " + (other.touch.writes ? "writes" : "reads") +
                            ", and neither waits for the other",
                        place);
}

void watch_device(Fiber& self, std::uintptr_t address, std::size_t bytes, AccessKind kind, Place place) {
  if (address >= kSharedBase && address - reinterpret_cast<std::uintptr_t>(self.block->shared()) >= kSharedStretch)
    self.block->fault(self, std::string("out of bounds: ") + verb(kind) + "shared memory of another block", place);
  if (!self.block->launch().beside.empty()) judge_streams(self, address, bytes, kind, place);
  if (!all_initialized(address, bytes)) judge_states(self, address, bytes, kind, place);
  judge_races(self, address, bytes, kind, place);
  if (address >= kSharedBase && kind != AccessKind::read) self.block->note_write(self, address, bytes);
}

bool within(std::uintptr_t address, const void* begin, const void* end) {
  return address >= reinterpret_cast<std::uintptr_t>(begin) && address < reinterpret_cast<std::uintptr_t>(end);
}

}  // namespace

bool lacks_value(const void* p, std::size_t bytes) {
  if (!kStates || !is_device_address(p)) return false;
  const State* s = state_of(p);
  return std::any_of(s, s + bytes, [](const State& x) { return settled(&x) == State::uninitialized; });
}

void forget_accesses(const void* p, std::size_t bytes) {
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(p) - kDeviceBase;
  for (const AccessRecords& records : kAccessRecords)
    madvise(at_address(records.base + records.bytes_for(offset)), records.bytes_for(bytes), MADV_DONTNEED);
}
void forget_accesses() {
  if (kStates) forget_accesses(at_address(kDeviceBase), kDeviceBytes);
}

void watch_access(Fiber& self, std::uintptr_t address, std::size_t bytes, AccessKind kind, Place place) {
  if (address - kDeviceBase < kDeviceBytes) return watch_device(self, address, bytes, kind, place);
  if (is_fiber_stack(address)) {
    if (slot_of(address) == slot_of(reinterpret_cast<std::uintptr_t>(&self))) return;
    self.block->fault(self, std::string(verb(kind)) + "a local variable of another thread", place);
  }
  if (within(address, __executable_start, _end)) return;  // constants
  const Kernel& kernel = self.block->launch().kernel;
  const auto* arguments = static_cast<const std::byte*>(kernel.arguments);
  if (within(address, arguments, arguments + kernel.argument_bytes)) return;
  self.block->fault(self, address < 4096 ? "follows a null pointer" : std::string(verb(kind)) + "memory of the host",
                    place);
}

void watch(const void* p, std::size_t bytes, AccessKind kind, Place place) {
  if constexpr (!kStates) return;
  const Stay stay;
  watch_access(stay.fiber(), reinterpret_cast<std::uintptr_t>(p), bytes, kind, place);
}

void watch_order(const void* p, std::size_t bytes, AccessKind kind, Place place) {
  if constexpr (!kStates) return;
  const Stay stay;
  judge_races(stay.fiber(), reinterpret_cast<std::uintptr_t>(p), bytes, kind, place);
}

void check_shared(const void* p, std::size_t bytes, const char* what, Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  if (address % bytes != 0)
    self.block->fault(self, std::string(what) + ": a shared address that is not a multiple of " + std::to_string(bytes),
                      place);
  const std::byte* shared = self.block->shared();
  if (!within(address, shared, shared + self.block->launch().extents.shared_bytes) ||
      !within(address + bytes - 1, shared, shared + self.block->launch().extents.shared_bytes))
    self.block->fault(self, std::string(what) + ": out of bounds: not an address in the block's shared memory", place);
}

namespace {

void land(const AsyncCopy& c) {
  std::memset(c.to, 0, c.bytes);
  std::memcpy(c.to, c.from, c.taken);
}

}  // namespace

void copy_async(const AsyncCopy& copy, Place place) {
  require_capability(80, "cp.async", place);
  const Stay stay;
  Fiber& self = stay.fiber();
  check_shared(copy.to, copy.bytes, "cp.async", place);
  if (reinterpret_cast<std::uintptr_t>(copy.from) % copy.bytes != 0)
    self.block->fault(self, "cp.async: a global address that is not a multiple of " + std::to_string(copy.bytes),
                      place);
  self.place = place;
  if (copy.taken > 0) watch(copy.from, copy.taken, AccessKind::read, place);
  watch(copy.to, copy.bytes, AccessKind::write, place);
  if (self.block->copies_land_at_once()) return land(copy);
  mark(copy.to, copy.bytes, State::in_flight);
  self.copies.push_back({.copy = copy, .group = self.copy_group});
}

void commit_copies() {
  const Stay stay;
  ++stay.fiber().copy_group;
}

void wait_copies(int pending) {
  const Stay stay;
  Fiber& self = stay.fiber();
  std::erase_if(self.copies, [&](const PendingCopy& p) {
    if (self.copy_group - p.group <= static_cast<unsigned>(pending)) return false;
    mark(p.copy.to, p.copy.bytes, State::uninitialized);
    land(p.copy);
    watch(p.copy.to, p.copy.bytes, AccessKind::write, self.place);
    return true;
  });
}

namespace {

template <class T>
T applied(T old, AtomicOp op, T value) {
  switch (op) {
    case AtomicOp::add: return old + value;
    case AtomicOp::max: return std::max(old, value);
    case AtomicOp::min: return std::min(old, value);
    case AtomicOp::exchange: return value;
    default: break;
  }
  if constexpr (std::is_integral_v<T>) return op == AtomicOp::bit_or ? old | value : old & value;
  return old;
}

}  // namespace

template <class T>
T atomic(T* p, AtomicOp op, T value, Place place) {
  const Stay stay;
  watch(p, sizeof(T), AccessKind::atomic, place);
  T old;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  for (T next = applied(old, op, value);
       !__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);)
    next = applied(old, op, value);
  return old;
}

template <class T>
T compare_and_swap(T* p, T expected, T desired, Place place) {
  const Stay stay;
  watch(p, sizeof(T), AccessKind::atomic, place);
  __atomic_compare_exchange(p, &expected, &desired, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  return expected;
}

template int atomic(int*, AtomicOp, int, Place);
template unsigned atomic(unsigned*, AtomicOp, unsigned, Place);
template unsigned long long atomic(unsigned long long*, AtomicOp, unsigned long long, Place);
template float atomic(float*, AtomicOp, float, Place);
template double atomic(double*, AtomicOp, double, Place);
template int compare_and_swap(int*, int, int, Place);
template unsigned compare_and_swap(unsigned*, unsigned, unsigned, Place);
template unsigned long long compare_and_swap(unsigned long long*, unsigned long long, unsigned long long, Place);

}  // namespace qtrain::emulation
