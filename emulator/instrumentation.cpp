#include <fmt/format.h>

#include <cstdint>

#include "emulator/block.h"
#include "emulator/memory.h"

/// Kernels are compiled with instrumentation for the thread sanitizer and the undefined-behavior sanitizer; the
/// functions it calls are defined here instead of in their run-time libraries. Calls from host code in the same files
/// are ignored.
namespace qtrain::emulation {
namespace {

[[gnu::always_inline]] inline void accessed(const void* p, std::size_t bytes, AccessKind kind, const void* pc) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  if (is_own_stack(address) || !in_fiber()) return;
  if (current().inside > 0) return;
  const Stay stay;
  Fiber& self = stay.fiber();
  self.pc = pc;
  watch_access(self, address, bytes, kind, no_place());
}

// Data layouts of the undefined-behavior sanitizer.
struct SourceLocation {
  const char* file;
  std::uint32_t line, column;
};
struct TypeDescriptor {
  std::uint16_t kind, info;
  char name[];
};
struct TypeMismatch {
  SourceLocation location;
  const TypeDescriptor* type;
  unsigned char log_alignment, check_kind;
};
struct OutOfBounds {
  SourceLocation location;
  const TypeDescriptor *array, *index;
};

std::string last_part(const char* path) {
  const std::string text = path;
  const std::size_t slash = text.rfind('/');
  return slash == text.npos ? text : text.substr(slash + 1);
}

/// Ends the launch with the message that `describe` returns.
template <class Describe>
[[noreturn]] void undefined(const SourceLocation& where, const Describe& describe) {
  if (!in_fiber()) __builtin_trap();
  const Stay stay;
  Fiber& self = stay.fiber();
  self.pc = nullptr;
  self.block->fault(self, fmt::format("{} at {}:{}", describe(), last_part(where.file), where.line), no_place());
}

}  // namespace
}  // namespace qtrain::emulation

using namespace qtrain::emulation;

#define QTRAIN_ACCESS(name, bytes, kind)                               \
  void name(const void* p) {                                           \
    accessed(p, bytes, AccessKind::kind, __builtin_return_address(0)); \
  }

#define QTRAIN_ACCESSES(bytes)                                      \
  QTRAIN_ACCESS(__tsan_read##bytes, bytes, read)                    \
  QTRAIN_ACCESS(__tsan_write##bytes, bytes, write)                  \
  QTRAIN_ACCESS(__tsan_unaligned_read##bytes, bytes, read)          \
  QTRAIN_ACCESS(__tsan_unaligned_write##bytes, bytes, write)        \
  QTRAIN_ACCESS(__tsan_volatile_read##bytes, bytes, read)           \
  QTRAIN_ACCESS(__tsan_volatile_write##bytes, bytes, write)         \
  QTRAIN_ACCESS(__tsan_unaligned_volatile_read##bytes, bytes, read) \
  QTRAIN_ACCESS(__tsan_unaligned_volatile_write##bytes, bytes, write)

// Host code in kernel files may contain atomics (a static variable's guard, a shared pointer's count).
#define QTRAIN_ATOMICS(bits, type)                                                                  \
  type __tsan_atomic##bits##_load(const volatile type* p, int) {                                    \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                 \
  void __tsan_atomic##bits##_store(volatile type* p, type v, int) {                                 \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                       \
  }                                                                                                 \
  type __tsan_atomic##bits##_fetch_add(volatile type* p, type v, int) {                             \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                              \
  }                                                                                                 \
  type __tsan_atomic##bits##_fetch_sub(volatile type* p, type v, int) {                             \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                              \
  }                                                                                                 \
  type __tsan_atomic##bits##_exchange(volatile type* p, type v, int) {                              \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                 \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* e, type v, int, int) { \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
  }                                                                                                 \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* e, type v, int, int) {   \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
  }

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) {}

QTRAIN_ACCESSES(1)
QTRAIN_ACCESSES(2)
QTRAIN_ACCESSES(4)
QTRAIN_ACCESSES(8)
QTRAIN_ACCESSES(16)
void __tsan_read_range(const void* p, std::size_t bytes) {
  accessed(p, bytes, AccessKind::read, __builtin_return_address(0));
}
void __tsan_write_range(const void* p, std::size_t bytes) {
  accessed(p, bytes, AccessKind::write, __builtin_return_address(0));
}

QTRAIN_ATOMICS(8, std::uint8_t)
QTRAIN_ATOMICS(32, std::uint32_t)
QTRAIN_ATOMICS(64, std::uint64_t)

void __ubsan_handle_type_mismatch_v1(const TypeMismatch* m, std::uintptr_t address) {
  undefined(m->location, [&] {
    return fmt::format("misaligned: an access to {} at address {:#x}, which is not a multiple of {}", m->type->name,
                       address, 1u << m->log_alignment);
  });
}
void __ubsan_handle_out_of_bounds(const OutOfBounds* o, std::uintptr_t index) {
  undefined(o->location, [&] {
    return fmt::format("out of bounds: index {} of {}", static_cast<std::int64_t>(index), o->array->name);
  });
}
void __ubsan_handle_shift_out_of_bounds(const SourceLocation* l, std::uintptr_t, std::uintptr_t) {
  undefined(*l, [] { return "shifts by too many bits"; });
}
void __ubsan_handle_divrem_overflow(const SourceLocation* l, std::uintptr_t, std::uintptr_t) {
  undefined(*l, [] { return "divides by zero"; });
}
}
