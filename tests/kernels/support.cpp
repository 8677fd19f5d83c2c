#include "tests/kernels/support.h"

#include <numbers>

#include "core/rng.h"

namespace qtrain::testing {

Array random(DType dtype, Shape shape, std::uint64_t seed) {
  Array a(dtype, shape);
  const std::int64_t size = a.size();
  for (std::int64_t i = 0; i < size; i += 4) {
    const auto words = philox(seed, 0x7e57, static_cast<std::uint64_t>(i));
    const auto [v0, v1] = normal_pair(words[0], words[1]);
    const auto [v2, v3] = normal_pair(words[2], words[3]);
    std::int64_t at = i;
    for (const double v : {v0, v1, v2, v3})
      if (at < size) a.set(at++, static_cast<float>(Bf16(static_cast<float>(v))));
  }
  return a;
}

Array irregular(DType dtype, Shape shape, std::uint64_t seed) {
  Array a = random(dtype, shape, seed);
  for (std::int64_t i = 0; i < a.size(); ++i)
    a.set(i, a.get(i) * std::numbers::pi * static_cast<double>(3 + i % 97) / 300);
  return a;
}

}  // namespace qtrain::testing
