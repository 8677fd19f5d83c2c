#include "quant/gguf_blocks.h"

#include <gmock/gmock.h>

#include <bit>
#include <vector>

#include "core/formats/safetensors.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

class GgufBlocks : public ::testing::TestWithParam<GgufType> {};

TEST_P(GgufBlocks, ExpandToTheReferencesBits) {
  const SafetensorsReader golden(QTRAIN_SOURCE_DIR "/tests/quant/goldens/gguf_blocks.safetensors");
  const auto name = name_of(GetParam());
  const auto blocks = golden.at(name + ".blocks");
  const auto expected = golden.at(name + ".values").span<float>();
  std::vector<float> values(expected.size());
  ASSERT_TRUE(can_dequantize(GetParam()));
  dequantize_gguf(GetParam(), {blocks.data, blocks.bytes()}, values);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << i << ": " << values[i] << " instead of " << expected[i];
}

INSTANTIATE_TEST_SUITE_P(All, GgufBlocks,
                         ::testing::Values(GgufType::f32, GgufType::f16, GgufType::bf16, GgufType::q4_0, GgufType::q4_1,
                                           GgufType::q5_0, GgufType::q5_1, GgufType::q8_0, GgufType::q4_k,
                                           GgufType::q5_k, GgufType::q6_k),
                         [](const auto& info) { return name_of(info.param); });

TEST(GgufBlocks, OtherTypesAreRefused) {
  EXPECT_FALSE(can_dequantize(GgufType::iq4_nl));
  EXPECT_THAT(test::error_of(ErrorKind::input, [] { dequantize_gguf(GgufType::q2_k, {}, {}); }),
              ::testing::HasSubstr("Q2_K cannot be read"));
}

}  // namespace
}  // namespace qtrain
