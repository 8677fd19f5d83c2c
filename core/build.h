#pragma once

/// How the program was compiled. The only file with conditional compilation.
#if defined(__has_feature)
#define QTRAIN_HAS_FEATURE(name) __has_feature(name)
#else
#define QTRAIN_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || QTRAIN_HAS_FEATURE(address_sanitizer)
#define QTRAIN_BUILD_ASAN true
#else
#define QTRAIN_BUILD_ASAN false
#endif
#if defined(__SANITIZE_THREAD__) || QTRAIN_HAS_FEATURE(thread_sanitizer)
#define QTRAIN_BUILD_TSAN true
#else
#define QTRAIN_BUILD_TSAN false
#endif

namespace qtrain {

inline constexpr bool kAddressSanitizer = QTRAIN_BUILD_ASAN;
inline constexpr bool kThreadSanitizer = QTRAIN_BUILD_TSAN;

}  // namespace qtrain
