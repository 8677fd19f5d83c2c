#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/device.h"
#include "emulator/thread.h"

namespace qtrain::emulation {

namespace ptx {
struct Instruction;
}
class Block;

enum class FiberState : std::uint8_t { ready, in_exchange, at_barrier, at_mbarrier, finished };

/// An execution context that can be switched away from.
struct Context {
  void* stack_pointer = nullptr;
  void* fake_stack = nullptr;  ///< for the address sanitizer
  void* tsan = nullptr;
  const void* stack_bottom = nullptr;
  std::size_t stack_bytes = 0;
};

struct PendingCopy {
  AsyncCopy copy;
  unsigned group;
};

/// An asynchronous product that still uses its registers.
struct HeldRegisters {
  const ptx::Instruction* product;
  unsigned group;
};

/// One CUDA thread. It is stored at the top of its own stack, so that a thread finds its Fiber through the stack
/// pointer.
struct Fiber : Context {
  Block* block = nullptr;
  Index3 index;
  unsigned number = 0, lane = 0, warp = 0;
  unsigned restarts = 0;
  FiberState state = FiberState::ready;
  const void* pc = nullptr;  ///< program counter of the last access that compiler instrumentation reported
  std::uint16_t met = 1;     ///< the warp's epoch when this thread last met others
  std::uint16_t epoch = 1;   ///< likewise, or that of its last arrival at a barrier in shared memory

  const char* waits_in = "";
  Place place;
  std::uint32_t mask = 0;
  Exchange act = nullptr;
  void* argument = nullptr;

  /// Greater than 0 while it runs harness code, which shares library functions with instrumented files.
  int inside = 0;

  std::vector<PendingCopy> copies;
  unsigned copy_group = 0;
  std::uint32_t proxy_fences = 1;  ///< number of calls of fence.proxy.async and of begun blocks

  /// For kernels compiled by nvcc: register values, whether they were written, and local memory.
  std::vector<std::uint64_t> registers;
  std::vector<std::uint8_t> written;
  std::vector<std::byte> locals;
  std::vector<HeldRegisters> held;
  unsigned product_group = 0;
};

inline constexpr int kMaxThreads = 1024;
inline constexpr std::size_t kStackSlot = std::size_t{256} << 10;
inline constexpr std::size_t kFiberBytes = 1024;
inline constexpr std::size_t kStackStretch = kMaxThreads * kStackSlot;
inline constexpr std::uintptr_t kStackBase = kRegion - kMaxHostThreads * kStackStretch;
static_assert(sizeof(Fiber) <= kFiberBytes);

inline bool is_fiber_stack(std::uintptr_t address) {
  return address - kStackBase < kMaxHostThreads * kStackStretch;
}
inline std::uintptr_t slot_of(std::uintptr_t address) {
  return address & ~(kStackSlot - 1);
}
inline Fiber* fiber_at(std::uintptr_t address) {
  return reinterpret_cast<Fiber*>(slot_of(address) + kStackSlot - kFiberBytes);
}
/// The Fiber of the calling thread; only valid within a kernel.
[[gnu::always_inline]] inline Fiber& current() {
  return *fiber_at(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)));
}
[[gnu::always_inline]] inline bool in_fiber() {
  return is_fiber_stack(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)));
}
/// Whether an address is on the stack of the calling thread, where a kernel keeps most of its variables.
[[gnu::always_inline]] inline bool is_own_stack(std::uintptr_t address) {
  return slot_of(address) == slot_of(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)));
}

/// Marks that the calling thread runs harness code.
class Stay {
 public:
  Stay() : fiber_(current()) { ++fiber_.inside; }
  ~Stay() { --fiber_.inside; }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;
  Fiber& fiber() const { return fiber_; }

 private:
  Fiber& fiber_;
};

/// Creates a fiber for a host thread, with guard pages; its memory stays reserved.
Fiber* make_fiber(int host_thread, int number);
/// Makes the next switch to the fiber call entry() on an empty stack.
void restart(Fiber& fiber, void (*entry)());
/// Suspends `from` and resumes `to`.
void switch_context(Context& from, Context& to);
/// The first call of a new fiber; records the stack of `from`.
void entered(Context& from);
/// Makes the calling host thread a context that can be switched away from.
void adopt(Context& host);

}  // namespace qtrain::emulation
