#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

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

inline void expect_same_bytes(ConstTensor got, ConstTensor want, const std::string& what) {
  ASSERT_EQ(got.dtype, want.dtype) << what;
  ASSERT_EQ(got.numel(), want.numel()) << what;
  const std::size_t size = size_of(got.dtype);
  for (std::size_t i = 0; i < got.bytes(); ++i)
    ASSERT_EQ(int(got.data[i]), int(want.data[i])) << what << ": byte " << i % size << " of element " << i / size;
}

}  // namespace qtrain::testing
