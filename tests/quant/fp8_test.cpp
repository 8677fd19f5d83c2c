#include "quant/fp8.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/half.h"
#include "tests/core/temp_folder.h"
#include "tests/quant/support.h"

/// Matrices in FP8; those of transformers and compressed-tensors are in tests/quant/goldens/fp8_*.
namespace qtrain {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::TempFolder;

namespace fs = std::filesystem;

const fs::path kGoldens = QTRAIN_SOURCE_DIR "/tests/quant/goldens";

Tensor in_fp8(std::vector<std::uint8_t>& codes, Shape shape) {
  return {reinterpret_cast<std::byte*>(codes.data()), DType::f8_e4m3, shape, {}};
}

/// A matrix "m.weight" of FP8 numbers and its scales in a file.
class Fp8File : public ::testing::Test {
 protected:
  Fp8File() {
    for (unsigned i = 0; i < 256; ++i) codes_.push_back(static_cast<std::uint8_t>(i));
  }
  template <class T>
  SafetensorsReader reader(Shape shape, std::vector<T> scales, Shape shape_of_scales,
                           const std::string& ending = "_scale_inv") {
    const fs::path file = folder_ / "model.safetensors";
    write_safetensors(file, NamedTensors{{"m.weight", in_fp8(codes_, shape)},
                                         {"m.weight" + ending, view_of(std::span(scales), shape_of_scales)}});
    return SafetensorsReader(file);
  }
  static std::vector<float> values(const SafetensorsReader& file, const Fp8Config& config = {}) {
    const Fp8Matrix m = read_fp8(file, "m.weight", config);
    std::vector<float> all(static_cast<std::size_t>(m.codes.numel()));
    m.expand(0, view_of(std::span(all), m.codes.shape));
    return all;
  }

  TempFolder folder_;
  std::vector<std::uint8_t> codes_;
};

TEST_F(Fp8File, HoldsEveryNumberOfE4M3) {
  const std::vector<float> all = values(reader<float>({16, 16}, {1}, {1}));
  for (unsigned code = 0; code < 256; ++code) {
    const unsigned exponent = code / 8 % 16, mantissa = code % 8;
    if (code % 128 == 127) {
      EXPECT_TRUE(std::isnan(all[code])) << code;
      continue;
    }
    // OCP 8-bit Floating Point Specification, E4M3: a bias of 7, subnormal numbers, no infinity.
    const double size =
        exponent == 0 ? mantissa / 8.0 * std::exp2(-6) : (1 + mantissa / 8.0) * std::exp2(exponent - 7.0);
    EXPECT_EQ(all[code], code < 128 ? size : -size) << code;
  }
  EXPECT_EQ(all[126], 448) << "the largest";
}

TEST_F(Fp8File, MultipliesByTheScaleOfTheTensorRowOrBlock) {
  const std::vector<float> plain = values(reader<float>({8, 32}, {1}, {1}));
  const auto expect = [&](const std::vector<float>& got, const auto& scale_of, const char* what) {
    for (std::int64_t i = 0; i < 255; ++i) {
      if (i == 127) continue;  // not a number
      EXPECT_EQ(got[i], plain[i] * scale_of(i / 32, i % 32)) << what << ": " << i;
    }
  };
  expect(
      values(reader<float>({8, 32}, {3}, Shape{})), [](auto, auto) { return 3.F; }, "a tensor");
  std::vector<Bf16> rows;
  for (int i = 0; i < 8; ++i) rows.push_back(Bf16(static_cast<float>(i + 1)));
  expect(
      values(reader(Shape{8, 32}, rows, {8, 1}, "_scale")), [](auto row, auto) { return row + 1.F; }, "rows");
  // Blocks of 3 rows and 20 columns: the last ones are smaller.
  const std::vector<float> blocks{1, 2, 3, 4, 5, 6};
  expect(
      values(reader(Shape{8, 32}, blocks, {3, 2}), {.block = {3, 20}}),
      [&](auto row, auto column) { return blocks[static_cast<std::size_t>(row / 3 * 2 + column / 20)]; }, "blocks");
  // Scales of MXFP8 are exponents.
  expect(
      values(reader<std::uint8_t>({8, 32}, {127, 130}, {1, 2}), {.block = {8, 16}}),
      [](auto, auto column) { return column < 16 ? 1.F : 8.F; }, "exponents");
}

TEST_F(Fp8File, RefusesScalesThatDoNotFit) {
  const auto refused = [](const SafetensorsReader& file, const Fp8Config& config, const char* why) {
    const Error e = error_of([&] { read_fp8(file, "m.weight", config); });
    EXPECT_EQ(e.kind(), ErrorKind::input) << why;
    EXPECT_THAT(e.what(), HasSubstr(why));
    EXPECT_THAT(e.text().place, HasSubstr("m.weight"));
  };
  refused(reader<float>({8, 32}, {1, 2}, {2}), {}, "has [2] scales, but [8, 32] in blocks of [1, 32] needs [8, 1]");
  refused(reader<float>({8, 32}, {1, 2}, {2, 1}), {.block = {4, 16}}, "needs [2, 2]");
  const std::vector<float> six{1, 2, 3, 4, 5, 6};
  refused(reader(Shape{8, 32}, six, {2, 3}), {.block = {3, 20}}, "has [2, 3] scales");
  refused(reader(Shape{8, 32}, six, {6}), {.block = {3, 20}}, "has [6] scales");
  refused(reader<float>({2, 128}, {1, 2}, {1, 2}), {}, "has [1, 2] scales, but [2, 128] in blocks of [1, 128]");
  refused(reader<float>({8, 32}, {1}, {1}, "_scales"), {}, "no scale");
  refused(reader<float>({2, 4, 32}, {1}, {1}), {}, "must be an FP8 matrix");
  refused(reader<std::int32_t>({8, 32}, {1}, {1}), {}, "scales of type int32");
  refused(reader<float>({4, 0}, {}, {0}), {}, "is an empty FP8 matrix [4, 0]");
  refused(reader<float>({0, 4}, {}, {0}), {.block = {2, 2}}, "is an empty FP8 matrix [0, 4]");
}

TEST(Fp8, LibrariesExpandTheSameValues) {
  for (const char* folder : {"fp8_block", "fp8_row"}) {
    const auto config = fp8_config(read_json(kGoldens / folder / "config.json"), folder);
    ASSERT_TRUE(config) << folder;
    const SafetensorsReader file(kGoldens / folder), expected(kGoldens / folder / "expected.safetensors");
    ASSERT_EQ(expected.tensors().size(), 2U);
    for (const auto& [name, want] : expected.tensors()) {
      ASSERT_TRUE(is_fp8(file, name)) << folder << " " << name;
      std::vector<Bf16> got(static_cast<std::size_t>(want.numel()));
      const Tensor all = view_of(std::span(got), want.shape);
      const Fp8Matrix matrix = read_fp8(file, name, *config);
      matrix.expand(0, all.slice(0, 5));
      matrix.expand(5, all.slice(5, want.shape[0] - 5));
      testing::expect_same_bytes(all, want, std::string(folder) + " " + name);
    }
  }
}

Json config_with(const char* edit) {
  Json config = read_json(kGoldens / "fp8_row/config.json");
  config["quantization_config"].merge_patch(Json::parse(edit));
  return config;
}

TEST(Fp8, IsNamedInConfigs) {
  EXPECT_EQ(fp8_config(read_json(kGoldens / "fp8_block/config.json"), "")->block, Shape(16, 16));
  EXPECT_EQ(fp8_config(config_with("{}"), "")->block.rank, 0);
  EXPECT_EQ(
      fp8_config(config_with(R"({"config_groups": {"group_0": {"weights": {"block_structure": [128, 64]}}}})"), "")
          ->block,
      Shape(128, 64));
  EXPECT_EQ(
      fp8_config({{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", nullptr}}}}, "")->block.rank,
      0)
      << "a scale per matrix";
  for (const char* other : {R"({"quant_method": "gptq"})", R"({"format": "pack-quantized"})"})
    EXPECT_FALSE(fp8_config(config_with(other), "")) << other;
  EXPECT_FALSE(fp8_config(Json::object(), ""));
  EXPECT_FALSE(fp8_config({{"quantization_config", "fp8"}}, ""));
}

TEST(Fp8, UnusableConfigsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"config_groups": null})", "config_groups"},
      {R"({"config_groups": {"group_0": 3}})", "no weights"},
      {R"({"config_groups": {"group_0": {"weights": null}}})", "no weights"},
      {R"({"config_groups": {"group_0": {"weights": {"num_bits": 4}}}})", "8-bit"},
      {R"({"config_groups": {"group_0": {"weights": {"type": "int"}}}})", "8-bit"},
      {R"({"config_groups": {"group_0": {"weights": {"symmetric": false}}}})", "symmetric"},
      {R"({"config_groups": {"group_0": {"weights": {"block_structure": [128]}}}})", "block_structure"},
      {R"({"config_groups": {"group_1": {"weights": {"num_bits": 8, "type": "float", "block_structure": [8, 8]}}}})",
       "different blocks"},
      {R"({"sparsity_config": {"format": "sparse-24-bitmask"}})", "sparsity_config"},
      {R"({"transform_config": {"config_groups": {}}})", "transform_config"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 0]})", "weight_block_size"},
      {R"({"quant_method": "fp8", "weight_block_size": [1e30, 1]})", "weight_block_size"},
      {R"({"quant_method": "fp8", "weight_block_size": "128"})", "weight_block_size"},
  };
  for (const auto& [edit, why] : cases) {
    const Error e = error_of([&, edit = edit] { fp8_config(config_with(edit), "folder/config.json"); });
    EXPECT_EQ(e.kind(), ErrorKind::input) << edit;
    EXPECT_THAT(e.what(), HasSubstr(why)) << edit;
    EXPECT_THAT(e.text().place, HasSubstr("folder/config.json: quantization_config")) << edit;
  }
}

}  // namespace
}  // namespace qtrain
