#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace qtrain::testing {

/// The signed sums that goldens store in place of a tensor, or its values if there are at most 16. golden_sums.py
/// explains why their distances estimate those of the tensors.
inline std::vector<double> signed_sums(const std::vector<double>& values) {
  constexpr std::size_t kCount = 16;
  if (values.size() <= kCount) return values;
  std::vector<double> sums(kCount);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t hash = (i + 1) * 0x9E3779B97F4A7C15;  // splitmix64
    hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EB;
    hash ^= hash >> 31;
    for (std::size_t j = 0; j < kCount; ++j) sums[j] += (hash >> j) % 2 == 1 ? -values[i] : values[i];
  }
  return sums;
}

}  // namespace qtrain::testing
