#include "quant/mxfp4.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/core/temp_folder.h"
#include "tests/quant/support.h"

/// Values of MXFP4; those of a whole model are in tests/golden/data/gpt_oss_mxfp4.
namespace qtrain {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::TempFolder;

/// A matrix [1, 2, 64] of blocks and scales in a file.
class Mxfp4File : public ::testing::Test {
 protected:
  Mxfp4File() : blocks_(64), scales_{127, 130, 120, 0} {
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = static_cast<std::uint8_t>(i * 37 % 256);
  }
  SafetensorsReader reader(Shape blocks = {1, 2, 2, 16}, Shape scales = {1, 2, 2}) const {
    const std::filesystem::path file = folder_ / "model.safetensors";
    write_safetensors(file, NamedTensors{{"m_blocks", view_of(std::span(blocks_), blocks)},
                                         {"m_scales", view_of(std::span(scales_), scales)}});
    return SafetensorsReader(file);
  }

  TempFolder folder_;
  std::vector<std::uint8_t> blocks_, scales_;
};

TEST_F(Mxfp4File, HoldsSignsExponentsAndMantissas) {
  const SafetensorsReader file = reader();
  std::vector<float> all(128), end(64);
  const Mxfp4 m = read_mxfp4(file, "m", {1, 2, 64});
  m.expand(0, view_of(std::span(all), {128}));
  m.expand(64, view_of(std::span(end), {64}));
  EXPECT_TRUE(std::equal(end.begin(), end.end(), all.begin() + 64)) << "the second half";
  for (std::size_t i = 0; i < all.size(); ++i) {
    const unsigned bits = blocks_[i / 2] >> (i % 2 * 4) & 15u, exponent = bits >> 1 & 3u;
    // OCP Microscaling, E2M1 with a bias of 1 and subnormals; the scale E8M0 with a bias of 127.
    const double size = exponent == 0 ? 0.5 * (bits & 1u) : (1 + 0.5 * (bits & 1u)) * std::exp2(exponent - 1.0);
    EXPECT_EQ(all[i], (bits & 8u ? -size : size) * std::exp2(scales_[i / 32] - 127.0)) << i;
  }
}

TEST_F(Mxfp4File, RefusesOtherShapes) {
  const SafetensorsReader file = reader();
  for (const Shape& shape : {Shape{1, 2, 96}, Shape{2, 2, 64}, Shape{1, 2, 63}, Shape{128, 1, 1}, Shape{2, 64}}) {
    const Error e = error_of([&] { read_mxfp4(file, "m", shape); });
    EXPECT_EQ(e.kind(), ErrorKind::input);
    EXPECT_THAT(e.text().place, HasSubstr("m_blocks")) << to_string(shape);
  }
  const SafetensorsReader other = reader({1, 2, 2, 16}, {1, 4, 1});
  EXPECT_THAT(error_of([&] { read_mxfp4(other, "m", {1, 2, 64}); }).text().place, HasSubstr("m_scales"));
  EXPECT_EQ(error_of([&] { read_mxfp4(other, "n", {1, 2, 64}); }).kind(), ErrorKind::input);
}

TEST(Mxfp4, IsNamedInConfigs) {
  EXPECT_TRUE(is_mxfp4_config({{"quantization_config", {{"quant_method", "mxfp4"}}}}));
  for (const Json& other :
       {Json{{"quantization_config", {{"quant_method", "gptq"}}}}, Json{{"quantization_config", "mxfp4"}},
        Json{{"quantization_config", nullptr}}, Json{{"quantization_config", Json::object()}}, Json::object()})
    EXPECT_FALSE(is_mxfp4_config(other)) << other.dump();
}

}  // namespace
}  // namespace qtrain
