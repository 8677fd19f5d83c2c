#pragma once
#include <algorithm>
#include <iterator>
#include <vector>

namespace qtrain {

/// The median: for an even number of values, the mean of the middle two; 0 if there are none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace qtrain
