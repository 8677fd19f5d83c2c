#pragma once
#include <cstddef>
#include <cstdint>

namespace qtrain {

/// A count or place, never negative, as containers take it.
constexpr std::size_t idx(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace qtrain
