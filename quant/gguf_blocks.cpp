#include "quant/gguf_blocks.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "core/half.h"

namespace qtrain {
namespace {

using Bytes = const std::uint8_t*;

float f16_at(Bytes p) {
  F16 h;
  std::memcpy(&h.bits, p, 2);
  return h;
}

void f32_values(Bytes block, float* out) {
  std::memcpy(out, block, 4);
}

void f16_values(Bytes block, float* out) {
  *out = f16_at(block);
}

void bf16_values(Bytes block, float* out) {
  Bf16 h;
  std::memcpy(&h.bits, block, 2);
  *out = h;
}

// Low nibbles are elements 0..15, high nibbles 16..31.

/// {f16 d; u8[16]}: d (q - 8)
void q4_0_values(Bytes block, float* out) {
  const float d = f16_at(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block[2 + i] & 15) - 8);
    out[16 + i] = d * static_cast<float>((block[2 + i] >> 4) - 8);
  }
}

/// {f16 d, m; u8[16]}: d q + m
void q4_1_values(Bytes block, float* out) {
  const float d = f16_at(block), m = f16_at(block + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(block[4 + i] & 15) + m;
    out[16 + i] = d * static_cast<float>(block[4 + i] >> 4) + m;
  }
}

/// Element i of a block whose fifth bits are stored as a u32 before the nibbles.
int five_bits(Bytes bits, int i) {
  const Bytes nibbles = bits + 4;
  const int low = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
  return low | (bits[i / 8] >> (i % 8) & 1) << 4;
}

/// {f16 d; u8[4] fifth bits; u8[16]}: d (q - 16)
void q5_0_values(Bytes block, float* out) {
  const float d = f16_at(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(five_bits(block + 2, i) - 16);
}

/// {f16 d, m; u8[4] fifth bits; u8[16]}: d q + m
void q5_1_values(Bytes block, float* out) {
  const float d = f16_at(block), m = f16_at(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(five_bits(block + 4, i)) + m;
}

/// {f16 d; i8[32]}: d q
void q8_0_values(Bytes block, float* out) {
  const float d = f16_at(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
}

struct ScaleMin {
  int scale, min;
};

/// 6-bit scale and minimum of sub-block j of 8, packed in 12 bytes; the upper two bits of the last four are in the
/// first eight bytes.
ScaleMin scale_min(Bytes s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4};
}

/// {f16 d, dmin; u8[12] scales; u8[128]}: (d scale) q - (dmin min), sub-blocks of 32
void q4_k_values(Bytes block, float* out) {
  const float d = f16_at(block), dmin = f16_at(block + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_min(block + 4, j);
    const float step = d * static_cast<float>(scale), base = dmin * static_cast<float>(min);
    const Bytes q = &block[16 + 32 * (j / 2)];
    for (int i = 0; i < 32; ++i) out[32 * j + i] = step * static_cast<float>(q[i] >> (4 * (j % 2)) & 15) - base;
  }
}

/// {f16 d, dmin; u8[12] scales; u8[32] fifth bits; u8[128]}: (d scale) q - (dmin min), sub-blocks of 32
void q5_k_values(Bytes block, float* out) {
  const float d = f16_at(block), dmin = f16_at(block + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_min(block + 4, j);
    const float step = d * static_cast<float>(scale), base = dmin * static_cast<float>(min);
    const Bytes high = block + 16, q = &block[48 + 32 * (j / 2)];
    for (int i = 0; i < 32; ++i) {
      const int value = (q[i] >> (4 * (j % 2)) & 15) | (high[i] >> j & 1) << 4;
      out[32 * j + i] = step * static_cast<float>(value) - base;
    }
  }
}

/// {u8[128] low nibbles; u8[64] upper two bits; i8[16] scales; f16 d}: (d scale) (q - 32), sub-blocks of 16.
/// Each half of 128 values has 64 bytes of nibbles (low ones first) and 32 bytes of upper bits (four fields each).
void q6_k_values(Bytes block, float* out) {
  const float d = f16_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, in_half = i % 128;
    const int low = block[64 * half + in_half % 64] >> (4 * (in_half / 64)) & 15;
    const int high = block[128 + 32 * half + in_half % 32] >> (2 * (in_half / 32)) & 3;
    const float scale = d * static_cast<float>(static_cast<std::int8_t>(block[192 + i / 16]));
    out[i] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

template <void (*Values)(Bytes block, float* out), std::size_t kBytes, std::size_t kValues>
void expand_all(Bytes blocks, std::span<float> out) {
  for (std::size_t i = 0, n = out.size() / kValues; i < n; ++i) Values(blocks + i * kBytes, out.data() + i * kValues);
}

struct Expander {
  GgufType type;
  void (*expand)(Bytes blocks, std::span<float> out);
};

constexpr Expander kExpanders[] = {
    {GgufType::f32, expand_all<f32_values, 4, 1>},       {GgufType::f16, expand_all<f16_values, 2, 1>},
    {GgufType::bf16, expand_all<bf16_values, 2, 1>},     {GgufType::q4_0, expand_all<q4_0_values, 18, 32>},
    {GgufType::q4_1, expand_all<q4_1_values, 20, 32>},   {GgufType::q5_0, expand_all<q5_0_values, 22, 32>},
    {GgufType::q5_1, expand_all<q5_1_values, 24, 32>},   {GgufType::q8_0, expand_all<q8_0_values, 34, 32>},
    {GgufType::q4_k, expand_all<q4_k_values, 144, 256>}, {GgufType::q5_k, expand_all<q5_k_values, 176, 256>},
    {GgufType::q6_k, expand_all<q6_k_values, 210, 256>}};

const Expander* expander(GgufType type) {
  for (const auto& e : kExpanders)
    if (e.type == type) return &e;
  return nullptr;
}

}  // namespace

bool can_dequantize(GgufType type) {
  return expander(type) != nullptr;
}

void dequantize_gguf(GgufType type, std::span<const std::byte> blocks, std::span<float> out) {
  const auto* found = expander(type);
  if (found == nullptr)
    fail(ErrorKind::input, {.cause = fmt::format("GGUF tensors of {} cannot be read", name_of(type)),
                            .remedy = "use a file of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 or Q4_K to Q6_K"});
  const auto& block = *gguf_block(type);
  check(blocks.size() % block.bytes == 0, "not a whole number of blocks");
  check(blocks.size() / block.bytes * block.values == out.size(), "blocks and values differ in number");
  found->expand(reinterpret_cast<Bytes>(blocks.data()), out);
}

}  // namespace qtrain
