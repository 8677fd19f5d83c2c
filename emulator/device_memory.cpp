#include "emulator/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "emulator/memory.h"

extern "C" {
// From the sanitizers' run-time library; only called if it is linked.
// NOLINTBEGIN(bugprone-reserved-identifier)
[[gnu::weak]] void __asan_poison_memory_region(const volatile void*, std::size_t);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void*, std::size_t);
// NOLINTEND(bugprone-reserved-identifier)
}

namespace qtrain::emulation {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kNan = 0xff;  // all bits set is NaN in every float format

std::size_t pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

void reserve(std::uintptr_t base, std::size_t bytes, int protection) {
  void* p = mmap(at_address(base), bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
                 -1, 0);
  if (p == MAP_FAILED)
    fail(ErrorKind::memory, {.cause = "cannot reserve addresses for the emulated device",
                             .remedy = "raise the limit of virtual memory (ulimit -v unlimited)"});
  madvise(p, bytes, MADV_DONTDUMP);
  // Device memory changes its protection for every piece of work, which takes a fraction of the time with large pages.
  madvise(p, bytes, MADV_HUGEPAGE);
}

}  // namespace

DeviceHeap& DeviceHeap::instance() {
  static DeviceHeap heap;
  return heap;
}

DeviceHeap::DeviceHeap() {
  reserve(kDeviceBase, kSharedBase - kDeviceBase, PROT_NONE);
  reserve(kSharedBase, kMaxHostThreads * kSharedStretch, PROT_READ | PROT_WRITE);
  if (!kStates) return;
  reserve(kStateBase, kDeviceBytes, PROT_READ | PROT_WRITE);
  for (const AccessRecords& records : kAccessRecords)
    reserve(records.base, records.bytes_for(kDeviceBytes), PROT_READ | PROT_WRITE);
}

void* DeviceHeap::allocate(std::size_t bytes) {
  const Access access;
  const std::size_t size = pages(bytes);
  if (used_ + size > settings().memory_bytes || next_ + size + kPage > kSharedBase) return nullptr;
  void* p = at_address(next_);
  {
    const std::lock_guard lock(blocks_mutex_);
    blocks_.emplace(next_, bytes);
  }
  next_ += size + kPage;
  used_ += size;
  protect(PROT_READ | PROT_WRITE);
  if (!kStates) mark(p, bytes, State::uninitialized);
  if constexpr (kAddressSanitizer) __asan_poison_memory_region(static_cast<char*>(p) + bytes, size - bytes + kPage);
  return p;
}

bool DeviceHeap::release(void* p) {
  const Access access;
  std::size_t size = 0;
  {
    const std::lock_guard lock(blocks_mutex_);
    const auto it = blocks_.find(reinterpret_cast<std::uintptr_t>(p));
    if (it == blocks_.end()) return false;
    size = pages(it->second);
    blocks_.erase(it);
  }
  used_ -= size;
  madvise(p, size, MADV_DONTNEED);
  if constexpr (kAddressSanitizer) __asan_poison_memory_region(p, size);
  if (!kStates) return true;
  madvise(state_of(p), size, MADV_DONTNEED);
  forget_accesses(p, size);
  return true;
}

bool DeviceHeap::contains(const void* p, std::size_t bytes) {
  const std::shared_lock lock(blocks_mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  auto it = blocks_.upper_bound(at);
  if (it == blocks_.begin()) return false;
  --it;
  return at + bytes <= it->first + it->second;
}

void DeviceHeap::protect(int protection) const {
  if (next_ > kDeviceBase) mprotect(at_address(kDeviceBase), next_ - kDeviceBase, protection);
}
void DeviceHeap::open() {
  if (opened_++ == 0) protect(PROT_READ | PROT_WRITE);
}
void DeviceHeap::close() {
  if (--opened_ == 0) protect(PROT_NONE);
}

Access::Access() : lock_(DeviceHeap::instance().mutex()) {
  DeviceHeap::instance().open();
}
Access::~Access() {
  DeviceHeap::instance().close();
}

bool is_allocated(const void* p, std::size_t bytes) {
  return DeviceHeap::instance().contains(p, bytes);
}

void mark(void* p, std::size_t bytes, State state) {
  if constexpr (kStates) std::memset(state_of(p), static_cast<int>(state), bytes);
  if constexpr (kAddressSanitizer)
    (state == State::fenced ? __asan_poison_memory_region : __asan_unpoison_memory_region)(p, bytes);
  // The thread sanitizer would use four bytes of its own for each byte.
  const bool filled = !kThreadSanitizer && (state == State::uninitialized || state == State::in_flight);
  if (filled) std::memset(p, kNan, bytes);
}

void copy_to_host(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
  if constexpr (!kStates) return;
  const State* s = state_of(from);
  for (std::size_t i = 0; i < bytes; ++i)
    if (s[i] != State::initialized) static_cast<unsigned char*>(to)[i] = kNan;
}

namespace {

[[noreturn]] void complain(std::string_view what, std::string_view fault) {
  fail(ErrorKind::internal, {.cause = std::string(what) + " " + std::string(fault)});
}

}  // namespace

void check_readable(const void* p, std::size_t bytes, std::string_view what) {
  if (!is_device_address(p)) complain(what, "reads memory that is not the device's");
  if (!is_allocated(p, bytes)) complain(what, "reads outside the memory that was allocated");
  if (!kStates) return;
  const State* s = state_of(p);
  for (std::size_t i = 0; i < bytes; ++i)
    if (s[i] != State::initialized)
      complain(what, s[i] == State::fenced ? "reads between tensors" : "reads memory that nothing has been written to");
}

void check_writable(const void* p, std::size_t bytes, std::string_view what) {
  if (!is_device_address(p)) complain(what, "writes memory that is not the device's");
  if (!is_allocated(p, bytes)) complain(what, "writes outside the memory that was allocated");
  if (!kStates) return;
  const State* s = state_of(p);
  if (std::find(s, s + bytes, State::fenced) != s + bytes) complain(what, "writes between tensors");
}

}  // namespace qtrain::emulation
