#pragma once
#include <cmath>

#include "core/rng.h"
#include "kernels/noise.h"
#include "tests/kernels/support.h"

namespace qtrain::testing {

/// Keys and magnitudes of rows; the keys are far apart and use all bits.
struct NoisyRows {
  Array keys, magnitudes;

  NoisyRows(std::int64_t rows, double magnitude) : keys(DType::i64, {rows}), magnitudes(DType::f32, {rows}) {
    for (std::int64_t t = 0; t < rows; ++t) {
      keys.host<std::int64_t>()[t] = static_cast<std::int64_t>(0x9E3779B97F4A7C15U * static_cast<std::uint64_t>(t + 1));
      magnitudes.set(t, magnitude);
    }
  }
};

/// Adds noise to rows of this width, of which one has none, and compares the result with the formula: the sum is
/// rounded once, so it has the same bits on every device.
inline void expect_noise_by_formula(Ctx& ctx, DType dtype, std::int64_t width) {
  constexpr std::int64_t kRows = 5;
  constexpr float kMagnitude = 0.3F, kScale = 3;
  NoisyRows in(kRows, kMagnitude);
  in.magnitudes.set(2, 0);
  Array y = random(dtype, {kRows, width}, 1);
  const Array x = y;
  ops::add_noise(ctx, {.y = y, .keys = in.keys, .magnitudes = in.magnitudes, .scale = kScale});
  ctx.synchronize();
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const std::int64_t t = i / width, c = i % width;
    const auto words = philox(static_cast<std::uint64_t>(in.keys.host<std::int64_t>()[t]), ops::kNoiseStream,
                              static_cast<std::uint64_t>(c / 4));
    const float magnitude = kScale * static_cast<float>(in.magnitudes.get(t));
    volatile float noise = magnitude * (2 * uniform(words[static_cast<std::size_t>(c % 4)]) - 1);
    Array want(dtype, {1});
    want.set(0, dtype == DType::f64 ? x.get(i) + noise : static_cast<double>(static_cast<float>(x.get(i)) + noise));
    ASSERT_EQ(y.get(i), want.get(0)) << name_of(dtype) << " " << t << " " << c;
    if (t == 2) {
      ASSERT_EQ(y.get(i), x.get(i)) << c;
    }
  }
}

}  // namespace qtrain::testing
