#pragma once

/// How the program was compiled. The only file with conditional compilation.
/// QTRAIN_SANITIZED_BY_* come from CMake: single files of a build may be instrumented differently.
#if defined(QTRAIN_SANITIZED_BY_ADDRESS)
#define QTRAIN_BUILD_ASAN true
#else
#define QTRAIN_BUILD_ASAN false
#endif
#if defined(QTRAIN_SANITIZED_BY_THREAD)
#define QTRAIN_BUILD_TSAN true
#else
#define QTRAIN_BUILD_TSAN false
#endif

namespace qtrain {

inline constexpr bool kAddressSanitizer = QTRAIN_BUILD_ASAN;
inline constexpr bool kThreadSanitizer = QTRAIN_BUILD_TSAN;

/// Padding becomes zeros, so that equal objects have equal bytes. Nothing happens where the compiler cannot: the
/// harness, which needs it, is not built with such a one.
template <class T>
void clear_padding([[maybe_unused]] T& value) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&value);
#endif
}

/// Lets the processor do less for some cycles, in a thread that spins while it waits for another.
inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

}  // namespace qtrain
