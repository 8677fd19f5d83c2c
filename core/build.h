#pragma once

/// Describes how the program was compiled. This is the only file with conditional compilation. CMake defines
/// QTRAIN_SANITIZED_BY_*, because individual files of a build may be instrumented differently.
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

/// Zeroes padding, so that equal objects have equal bytes. Does nothing if the compiler lacks the builtin: the harness,
/// which needs it, is not built with such a compiler.
template <class T>
void clear_padding([[maybe_unused]] T& value) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&value);
#endif
}

/// Pauses a thread for a few cycles while it spins.
inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

}  // namespace qtrain
