#pragma once
#include <array>
#include <cmath>
#include <cstdint>

namespace qtrain {

/// Number of partial sums of a dot product: the order of its additions does not depend on the processor.
inline constexpr std::int64_t kLanes = 8;

inline double sum_of_lanes(const std::array<double, kLanes>& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

inline double dot(const double* a, const double* b, std::int64_t n) {
  std::array<double, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[static_cast<std::size_t>(l)] += a[i + l] * b[i + l];
  for (std::int64_t l = 0; i < n; ++i, ++l) lanes[static_cast<std::size_t>(l)] += a[i] * b[i];
  return sum_of_lanes(lanes);
}

inline double norm_of(const double* a, std::int64_t n) {
  return std::sqrt(dot(a, a, n));
}

/// y += f * x.
inline void add_scaled(double* y, double f, const double* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += f * x[i];
}

}  // namespace qtrain
