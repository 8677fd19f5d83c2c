#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace qtrain::testing {

/// `uniform` of tests/quant/make_bnb_goldens.py: values in (-1, 1) with scales that change every 50 elements.
inline std::vector<float> uniform_values(std::int64_t n) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < n; ++i) {
    std::uint32_t word = i * 2654435761u + 97u;
    word ^= word >> 15;
    word *= 2246822519u;
    word ^= word >> 13;
    values.push_back(std::ldexp(static_cast<float>(word >> 8) / 8388608.0F - 1.0F, -static_cast<int>(i / 50 % 8)));
  }
  return values;
}

}  // namespace qtrain::testing
