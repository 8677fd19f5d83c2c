#include "kernels/code_table.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/dynamic_map.h"

namespace qtrain::ops {
namespace {

/// The smallest and the largest magnitude in a bucket.
std::array<float, 2> ends(std::int32_t bucket) {
  const auto leading = static_cast<std::uint32_t>(bucket + CodeTable::kLowest) << CodeTable::kLeadingBits;
  if (bucket == CodeTable::kBuckets - 1) return {1, 1};
  return {bucket == 0 ? 0 : std::bit_cast<float>(leading), std::bit_cast<float>(leading | 0xffffu)};
}

}  // namespace

CodeTable make_code_table(const std::array<float, 256>& values) {
  CodeTable t{};
  std::copy(values.begin(), values.end(), t.values);
  for (std::size_t c = 0; c + 1 < values.size(); ++c) t.limits[c] = (values[c] + values[c + 1]) / 2.0F;
  t.limits[values.size() - 1] = std::numeric_limits<float>::infinity();
  for (std::int32_t b = 0; b < CodeTable::kBuckets; ++b) {
    const auto [low, high] = ends(b);
    const int positive = nearest_code(t.values, low), negative = nearest_code(t.values, -high);
    check(nearest_code(t.values, high) - positive <= 1 && nearest_code(t.values, -low) - negative <= 1,
          "a bucket has at most two codes");
    t.first[b] = static_cast<std::uint8_t>(positive);
    t.first[CodeTable::kBuckets + b] = static_cast<std::uint8_t>(negative);
  }
  return t;
}

}  // namespace qtrain::ops
