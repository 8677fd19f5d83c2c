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

}  // namespace qtrain
