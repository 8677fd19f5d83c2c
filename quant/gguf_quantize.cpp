#include "quant/gguf_quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "core/half.h"

namespace qtrain {
namespace {

using Values = const float*;
using Block = std::uint8_t*;

void put_f16(Block out, float value) {
  const F16 h(value);
  std::memcpy(out, &h.bits, 2);
}

void f32_block(Values x, Block out) {
  std::memcpy(out, x, 4);
}

void f16_block(Values x, Block out) {
  put_f16(out, *x);
}

void bf16_block(Values x, Block out) {
  const Bf16 h(*x);
  std::memcpy(out, &h.bits, 2);
}

/// The value with the largest magnitude, the first on a tie.
float extreme(Values x) {
  float found = x[0];
  for (int i = 1; i < 32; ++i)
    if (std::abs(x[i]) > std::abs(found)) found = x[i];
  return found;
}

float inverse(float d) {
  return d == 0 ? 0 : 1 / d;
}

/// Rounds toward zero and clamps to [0, most]; a value that is not finite (the scale is so small that its inverse
/// overflows) becomes 0.
int truncated(float x, float most) {
  return std::isfinite(x) ? static_cast<int>(std::clamp(x, 0.0F, most)) : 0;
}

/// {f16 d; i8[32]}: d = max |x| / 127, halves away from zero
void q8_0_block(Values x, Block out) {
  const float d = std::abs(extreme(x)) / 127, id = inverse(d);
  put_f16(out, d);
  for (int i = 0; i < 32; ++i) {
    const float q = std::round(x[i] * id);
    out[2 + i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(std::isfinite(q) ? q : 0.0F));
  }
}

/// {f16 d; u8[16]}: the extreme value becomes -8
void q4_0_block(Values x, Block out) {
  const float d = extreme(x) / -8, id = inverse(d);
  put_f16(out, d);
  for (int i = 0; i < 16; ++i) {
    const int low = truncated(x[i] * id + 8.5F, 15), high = truncated(x[16 + i] * id + 8.5F, 15);
    out[2 + i] = static_cast<std::uint8_t>(low | high << 4);
  }
}

/// {f16 d; u8[4] fifth bits; u8[16]}: the extreme value becomes -16
void q5_0_block(Values x, Block out) {
  const float d = extreme(x) / -16, id = inverse(d);
  put_f16(out, d);
  std::uint32_t fifth = 0;
  for (int i = 0; i < 16; ++i) {
    const int low = truncated(x[i] * id + 16.5F, 31), high = truncated(x[16 + i] * id + 16.5F, 31);
    out[6 + i] = static_cast<std::uint8_t>((low & 15) | (high & 15) << 4);
    fifth |= static_cast<std::uint32_t>(low >> 4) << i | static_cast<std::uint32_t>(high >> 4) << (16 + i);
  }
  std::memcpy(out + 2, &fifth, 4);
}

/// x ~ step q - base with q in [0, 15], step and base >= 0.
struct Line {
  float step = 0, base = 0;
};

/// Sums over a sub-block for a weighted straight line through (q, x).
struct Moments {
  double w = 0, wq = 0, wqq = 0, wx = 0, wxq = 0;
};

Line fitted(const Moments& m) {
  const double det = m.w * m.wqq - m.wq * m.wq;
  if (det > 0) {
    const double step = (m.w * m.wxq - m.wq * m.wx) / det, base = (m.wq * m.wxq - m.wqq * m.wx) / det;
    if (step > 0 && base >= 0) return {static_cast<float>(step), static_cast<float>(base)};
  }
  return {m.wqq > 0 ? static_cast<float>(std::max(0.0, m.wxq / m.wqq)) : 0, 0};
}

/// The nearest integer in [0, most]; NaN becomes 0.
int nearest(float x, int most) {
  if (!(x > 0)) return 0;
  return x < static_cast<float>(most) ? static_cast<int>(std::lround(x)) : most;
}

/// The line with the least weighted squared error among candidates for slightly different ranges of q; large values
/// weigh more.
Line best_line(Values x) {
  const auto [least, most] = std::minmax_element(x, x + 32);
  const float low = std::min(*least, 0.0F), range = *most - low;
  if (!(range > 0)) return {0, -low};
  double squares = 0;
  for (int i = 0; i < 32; ++i) squares += double{x[i]} * x[i];
  const double mean = std::sqrt(squares / 32);
  Line best;
  double best_error = INFINITY;
  for (int candidate = 0; candidate <= 20; ++candidate) {
    const float scale = (14 + 0.1F * static_cast<float>(candidate)) / range;
    Moments m;
    for (int i = 0; i < 32; ++i) {
      const double w = mean + std::abs(x[i]), q = nearest(scale * (x[i] - low), 15);
      m.w += w, m.wq += w * q, m.wqq += w * q * q, m.wx += w * x[i], m.wxq += w * x[i] * q;
    }
    const Line line = fitted(m);
    double error = 0;
    for (int i = 0; i < 32; ++i) {
      const double off = line.step * nearest(scale * (x[i] - low), 15) - line.base - x[i];
      error += (mean + std::abs(x[i])) * off * off;
    }
    if (error < best_error) best = line, best_error = error;
  }
  return best;
}

/// Stores the 6-bit scale and minimum of sub-block j of 8 in 12 bytes; the upper two bits of the last four are in the
/// first eight bytes.
void put_scale_min(Block scales, int j, Line codes) {
  const int scale = static_cast<int>(codes.step), min = static_cast<int>(codes.base);
  if (j < 4) {
    scales[j] = static_cast<std::uint8_t>(scales[j] | scale);
    scales[j + 4] = static_cast<std::uint8_t>(scales[j + 4] | min);
  } else {
    scales[j + 4] = static_cast<std::uint8_t>((scale & 15) | (min & 15) << 4);
    scales[j - 4] = static_cast<std::uint8_t>(scales[j - 4] | scale >> 4 << 6);
    scales[j] = static_cast<std::uint8_t>(scales[j] | min >> 4 << 6);
  }
}

/// {f16 d, dmin; u8[12] scales; u8[128]}: (d scale) q - (dmin min), sub-blocks of 32
void q4_k_block(Values x, Block out) {
  std::array<Line, 8> lines;
  Line largest;
  for (int j = 0; j < 8; ++j) {
    lines[static_cast<std::size_t>(j)] = best_line(x + 32 * j);
    largest.step = std::max(largest.step, lines[static_cast<std::size_t>(j)].step);
    largest.base = std::max(largest.base, lines[static_cast<std::size_t>(j)].base);
  }
  const F16 d(largest.step / 63), dmin(largest.base / 63);
  put_f16(out, d);
  put_f16(out + 2, dmin);
  std::memset(out + 4, 0, 140);
  for (int j = 0; j < 8; ++j) {
    const Line line = lines[static_cast<std::size_t>(j)];
    const Line codes{static_cast<float>(nearest(line.step * inverse(d), 63)),
                     static_cast<float>(nearest(line.base * inverse(dmin), 63))};
    put_scale_min(out + 4, j, codes);
    const float id = inverse(d * codes.step), base = dmin * codes.base;
    const Block q = out + 16 + 32 * (j / 2);
    for (int i = 0; i < 32; ++i)
      q[i] = static_cast<std::uint8_t>(q[i] | nearest((x[32 * j + i] + base) * id, 15) << (4 * (j % 2)));
  }
}

template <void (*Pack)(Values x, Block out), std::size_t kValues, std::size_t kBytes>
void pack_all(std::span<const float> values, Block out) {
  for (std::size_t i = 0, n = values.size() / kValues; i < n; ++i) Pack(values.data() + i * kValues, out + i * kBytes);
}

struct Packer {
  GgufType type;
  void (*pack)(std::span<const float> values, Block out);
};

constexpr Packer kPackers[] = {
    {GgufType::f32, pack_all<f32_block, 1, 4>},      {GgufType::f16, pack_all<f16_block, 1, 2>},
    {GgufType::bf16, pack_all<bf16_block, 1, 2>},    {GgufType::q8_0, pack_all<q8_0_block, 32, 34>},
    {GgufType::q4_0, pack_all<q4_0_block, 32, 18>},  {GgufType::q5_0, pack_all<q5_0_block, 32, 22>},
    {GgufType::q4_k, pack_all<q4_k_block, 256, 144>}};

}  // namespace

void quantize_gguf(GgufType type, std::span<const float> values, std::span<std::byte> blocks) {
  const auto* found = std::find_if(std::begin(kPackers), std::end(kPackers), [&](auto& p) { return p.type == type; });
  check(found != std::end(kPackers), "no values are packed into this type");
  const auto& block = *gguf_block(type);
  check(values.size() % block.values == 0, "not a whole number of blocks");
  check(values.size() / block.values * block.bytes == blocks.size(), "values and blocks differ in number");
  found->pack(values, reinterpret_cast<Block>(blocks.data()));
}

}  // namespace qtrain
