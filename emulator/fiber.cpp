#include "emulator/fiber.h"

#include <sys/mman.h>

#include <memory>

#include "core/build.h"

extern "C" {
void qtrain_switch_stack(void** save, void* load);
// From the sanitizers' run-time libraries; only called if they are linked.
[[gnu::weak]] void __sanitizer_start_switch_fiber(void**, const void*, std::size_t);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void*, const void**, std::size_t*);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void*, std::size_t);
[[gnu::weak]] void* __tsan_create_fiber(unsigned);
[[gnu::weak]] void __tsan_destroy_fiber(void*);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void __tsan_switch_to_fiber(void*, unsigned);
}

// Saves the callee-saved registers of the System V ABI and switches to another stack.
asm(R"(
.text
.globl qtrain_switch_stack
.type qtrain_switch_stack, @function
qtrain_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size qtrain_switch_stack, .-qtrain_switch_stack
)");

namespace qtrain::emulation {
namespace {

constexpr std::size_t kGuard = 4096;
constexpr int kSavedRegisters = 6;

std::uintptr_t slot_base(int host_thread, int number) {
  return kStackBase + static_cast<std::size_t>(host_thread) * kStackStretch +
         static_cast<std::size_t>(number) * kStackSlot;
}

}  // namespace

Fiber* make_fiber(int host_thread, int number) {
  void* base = reinterpret_cast<void*>(slot_base(host_thread, number));
  void* p = mmap(base, kStackSlot, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (p == MAP_FAILED || mprotect(p, kGuard, PROT_NONE) != 0)
    fail(ErrorKind::memory, {.cause = "cannot reserve stacks for the threads of kernels",
                             .remedy = "raise the limits of virtual memory and of memory maps"});
  Fiber* fiber = std::construct_at(reinterpret_cast<Fiber*>(static_cast<std::byte*>(p) + kStackSlot - kFiberBytes));
  fiber->stack_bottom = static_cast<std::byte*>(p) + kGuard;
  fiber->stack_bytes = kStackSlot - kGuard - kFiberBytes;
  return fiber;
}

void restart(Fiber& fiber, void (*entry)()) {
  if constexpr (kAddressSanitizer) __asan_unpoison_memory_region(fiber.stack_bottom, fiber.stack_bytes);
  if constexpr (kThreadSanitizer) {
    // Creating one is slow, so each is reused, but only for this many CUDA threads: each leaves its last calls on the
    // sanitizer's stack of 65,536 entries.
    constexpr unsigned kThreadsOfOne = 256;
    if (fiber.restarts++ % kThreadsOfOne == 0) {
      if (fiber.tsan) __tsan_destroy_fiber(fiber.tsan);
      fiber.tsan = __tsan_create_fiber(0);
    }
  }
  // Stacks start at different offsets; otherwise all stacks would compete for the same few cache lines.
  const std::size_t color = fiber.number * 320 % 16384;
  auto** top = reinterpret_cast<void**>(reinterpret_cast<std::byte*>(&fiber) - 64 - color);
  *--top = nullptr;  // the return address of entry, which does not return
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
}

void switch_context(Context& from, Context& to) {
  if constexpr (kAddressSanitizer) __sanitizer_start_switch_fiber(&from.fake_stack, to.stack_bottom, to.stack_bytes);
  constexpr unsigned kOrdered = 0;  // the sanitizer looks for races of host threads; memory.cpp finds those of kernels
  if constexpr (kThreadSanitizer) __tsan_switch_to_fiber(to.tsan, kOrdered);
  qtrain_switch_stack(&from.stack_pointer, to.stack_pointer);
  if constexpr (kAddressSanitizer) __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
}

void entered(Context& from) {
  if constexpr (kAddressSanitizer) {
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (!from.stack_bottom) from.stack_bottom = bottom, from.stack_bytes = bytes;
  }
}

void adopt(Context& host) {
  host.stack_bottom = nullptr;
  if constexpr (kThreadSanitizer) host.tsan = __tsan_get_current_fiber();
}

}  // namespace qtrain::emulation
