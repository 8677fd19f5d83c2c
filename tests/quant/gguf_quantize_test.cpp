#include "quant/gguf_quantize.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/formats/safetensors.h"
#include "quant/gguf_blocks.h"

namespace qtrain {
namespace {

std::vector<std::byte> packed(GgufType type, std::span<const float> values) {
  const auto& block = *gguf_block(type);
  std::vector<std::byte> blocks(values.size() / block.values * block.bytes);
  quantize_gguf(type, values, blocks);
  return blocks;
}

std::vector<float> unpacked(GgufType type, std::span<const float> values) {
  std::vector<float> out(values.size());
  dequantize_gguf(type, packed(type, values), out);
  return out;
}

class GgufQuantize : public ::testing::TestWithParam<GgufType> {};

TEST_P(GgufQuantize, PacksTheReferencesBytes) {
  const SafetensorsReader golden(QTRAIN_SOURCE_DIR "/tests/quant/goldens/gguf_quantized.safetensors");
  const auto values = golden.at("values").span<float>();
  const auto expected = golden.at(name_of(GetParam()));
  const auto blocks = packed(GetParam(), values);
  ASSERT_EQ(blocks.size(), expected.bytes());
  const auto bytes_of_row = blocks.size() / (values.size() / 32);
  for (std::size_t row = 0; row < values.size() / 32; ++row)
    EXPECT_EQ(std::memcmp(&blocks[row * bytes_of_row], expected.data + row * bytes_of_row, bytes_of_row), 0)
        << "row " << row << " from " << values[32 * row];
}

INSTANTIATE_TEST_SUITE_P(All, GgufQuantize,
                         ::testing::Values(GgufType::f16, GgufType::bf16, GgufType::q8_0, GgufType::q4_0,
                                           GgufType::q5_0),
                         [](const auto& info) { return name_of(info.param); });

std::vector<float> normal_values(std::size_t count) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.01F, 0.7F);
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

/// Root mean squared error relative to the values.
double relative_error(std::span<const float> exact, std::span<const float> values) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(double{values[i]} - exact[i], 2);
    size += std::pow(double{exact[i]}, 2);
  }
  return std::sqrt(error / size);
}

// For these values, llama.cpp's own quantizer (ggml_quantize_chunk) has an error of 0.0718, and q4_0 in both programs
// 0.0856.
TEST(GgufQuantizeQ4K, FitsNormalValuesAsWellAsLlamaCpp) {
  const auto values = normal_values(64 * 256);
  const double error = relative_error(values, unpacked(GgufType::q4_k, values));
  EXPECT_LT(error, 1.01 * 0.0718);
  EXPECT_GT(error, 0.05);
  EXPECT_GT(relative_error(values, unpacked(GgufType::q4_0, values)), 1.15 * error);
}

TEST(GgufQuantizeQ4K, NoValueIsFurtherOffThanAStep) {
  const auto values = normal_values(64 * 256);
  const auto out = unpacked(GgufType::q4_k, values);
  for (std::size_t block = 0; block < values.size(); block += 32) {
    const auto [low, high] = std::minmax_element(&values[block], &values[block] + 32);
    for (std::size_t i = block; i < block + 32; ++i)
      ASSERT_LE(std::abs(out[i] - values[i]), (*high - std::min(*low, 0.0F)) / 15) << i;
  }
}

// Eight sub-blocks, each exactly on a grid of the format.
TEST(GgufQuantizeQ4K, KeepsValuesThatTheFormatHolds) {
  std::vector<float> values(256);
  for (std::size_t i = 0; i < 256; ++i) {
    const auto sub = static_cast<float>(i / 32), q = static_cast<float>(i * 7 % 16);
    const float scale = sub == 3 ? 63 : 8 * sub + 1, min = sub == 5 ? 63 : 5 * sub;
    values[i] = 0.25F * scale * q - 0.5F * min;
  }
  const auto out = unpacked(GgufType::q4_k, values);
  for (std::size_t i = 0; i < 256; ++i) ASSERT_EQ(out[i], values[i]) << i;
}

TEST(GgufQuantizeQ4K, TakesZerosConstantsAndTinyValues) {
  std::vector<float> values(4 * 256, 0);
  std::fill(values.begin() + 256, values.begin() + 512, -2.0F);
  std::fill(values.begin() + 512, values.begin() + 768, 3.0F);
  std::fill(values.begin() + 768, values.end(), 1e-41F);
  const auto out = unpacked(GgufType::q4_k, values);
  for (std::size_t i = 0; i < 256; ++i) {
    EXPECT_EQ(out[i], 0);
    EXPECT_NEAR(out[256 + i], -2, 2e-3);
    EXPECT_NEAR(out[512 + i], 3, 3e-3);
    EXPECT_NEAR(out[768 + i], 0, 1e-6);
  }
}

}  // namespace
}  // namespace qtrain
