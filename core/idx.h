#pragma once
#include <cstddef>
#include <cstdint>

namespace qtrain {

/// A non-negative count or index as a container size.
constexpr std::size_t idx(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace qtrain
