#pragma once
#include <cstddef>

namespace qtrain {

/// Longer paths of keys in a config have no line, because all of them together would take very much memory.
inline constexpr std::size_t kMaxKeyWithLine = 1000;

}  // namespace qtrain
