#include "quant/bnb.h"

#include <gmock/gmock.h>

#include "tests/core/temp_folder.h"
#include "tests/quant/support.h"

/// The tensors and configuration of folders from bitsandbytes.
namespace qtrain {
namespace {

using ::testing::AllOf;
using testing::error_of;
using testing::expect_same_bytes;
using ::testing::HasSubstr;
using testing::TempFolder;

const std::string kFolders = QTRAIN_SOURCE_DIR "/tests/quant/goldens/";

std::string text_of(ConstTensor bytes) {
  return {reinterpret_cast<const char*>(bytes.data), bytes.bytes()};
}

const std::string kWeight = "model.layers.0.mlp.gate_proj.weight";

TEST(Bnb, QuantizedMatrixIsTheReferences) {
  Ctx ctx;
  const SafetensorsReader source(kFolders + "bnb_model");
  for (const auto& [folder, options] : {std::pair{"bnb_model_nf4", Quantize4Options{}},
                                        {"bnb_model_fp4", Quantize4Options{.type = FourBit::fp4, .nested = false}}}) {
    const SafetensorsReader golden(kFolders + folder);
    ASSERT_TRUE(has_matrix4(golden, kWeight));
    const Matrix4 want = read_matrix4(golden, kWeight);
    const Quantized4 quantized = quantize_matrix(ctx, source.at(kWeight), options, kWeight);
    const Matrix4 got = quantized.view();
    expect_same_bytes(got.codes, want.codes, "codes");
    expect_same_bytes(got.absmax, want.absmax, "absmax");
    expect_same_bytes(got.map, golden.at(kWeight + ".quant_map"), "map");
    EXPECT_EQ(quant_state_json(got.state), quant_state_json(want.state));
    if (!options.nested) continue;
    expect_same_bytes(got.nested_absmax, want.nested_absmax, "nested absmax");
    expect_same_bytes(got.nested_map, want.nested_map, "nested map");
    EXPECT_EQ(quant_state_json(got.state), text_of(golden.at(kWeight + ".quant_state.bitsandbytes__nf4")));
  }
}

/// 301 scales make two nested blocks. Torch's mean may be rounded differently on another machine; then some codes are
/// those of neighboring values.
TEST(Bnb, ManyNestedScalesAreTheReferences) {
  Ctx ctx;
  const SafetensorsReader golden(kFolders + "bnb.safetensors");
  std::vector<Bf16> x;
  for (const float v : testing::uniform_values(64 * 300 + 10)) x.emplace_back(v);
  const Quantized4 q = quantize_matrix(ctx, view_of(std::span<const Bf16>(x), {64 * 300 + 10, 1}), {}, "x");
  const Json state = parse_json(text_of(golden.at("nested.quant_state.bitsandbytes__nf4")), "golden");
  const float offset = state["nested_offset"].get<float>();
  EXPECT_NEAR(q.state.nested->offset, offset, 4e-7F * offset);
  expect_same_bytes(q.view().codes, golden.at("nested.codes"), "codes");
  if (q.state.nested->offset != offset) return;
  expect_same_bytes(q.view().absmax, golden.at("nested.absmax"), "absmax");
  expect_same_bytes(q.view().nested_absmax, golden.at("nested.nested_absmax"), "nested absmax");
}

TEST(Bnb, NestedScalesAreDecodedAsTheReferenceDoes) {
  Ctx ctx;
  const SafetensorsReader golden(kFolders + "bnb_model_nf4");
  const Matrix4 m = read_matrix4(golden, kWeight);
  std::vector<float> y(static_cast<std::size_t>(m.state.shape.numel()));
  ops::dequantize4(ctx, {.y = view_of(std::span(y), m.state.shape), .w = m.blocks()});
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float *map = m.nested_map.as<float>(), *scales = m.nested_absmax.as<float>();
    const volatile float product = map[m.absmax.as<std::uint8_t>()[i / 64]] * scales[0];
    const float absmax = product + m.state.nested->offset;
    const std::uint8_t byte = m.codes.as<std::uint8_t>()[i / 2];
    ASSERT_EQ(y[i], kNf4Map[i % 2 == 0 ? byte >> 4 : byte & 15] * absmax) << i;
  }
}

TEST(Bnb, SizesAreThoseOfTheParts) {
  const SafetensorsReader golden(kFolders + "bnb_model_nf4");
  const Matrix4 m = read_matrix4(golden, kWeight);
  std::size_t bytes = sizeof(float);  // the offset, which is in the JSON
  for (const char* part : {"", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"})
    bytes += golden.at(kWeight + part).bytes();
  EXPECT_EQ(sizes4(m.state).bytes(), bytes);
}

TEST(Bnb, EightBitMatrixIsRead) {
  Ctx ctx;
  const SafetensorsReader golden(kFolders + "bnb_model_int8"), source(kFolders + "bnb_model");
  ASSERT_TRUE(has_matrix8(golden, kWeight));
  EXPECT_FALSE(has_matrix8(golden, "lm_head.weight"));
  const Matrix8 m = read_matrix8(golden, kWeight);
  std::vector<float> y(static_cast<std::size_t>(m.codes.numel()));
  ops::dequantize_rows8(ctx, {.y = view_of(std::span(y), m.codes.shape), .codes = m.codes, .scale = m.scale});
  const Bf16* x = source.at(kWeight).as<Bf16>();
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], x[i], m.scale.as<float>()[i / 32] / 127 * 0.51F) << i;
}

TEST(Bnb, ValuesThatCannotBeQuantizedAreNamed) {
  Ctx ctx;
  std::vector<float> x(300, 1.0F);
  x[207] = INFINITY;
  const Error error = error_of([&] { quantize_matrix(ctx, view_of(std::span<const float>(x), {3, 100}), {}, "f: w"); });
  EXPECT_EQ(error.kind(), ErrorKind::input);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("f: w"), HasSubstr("element 207 is inf")));
  const std::vector<double> wide(64);
  const Error dtype = error_of([&] {
    quantize_matrix(ctx, view_of(std::span<const double>(wide), {8, 8}), {}, "f: w");
  });
  EXPECT_THAT(dtype.what(), HasSubstr("float64"));
}

TEST(QuantState, IsWrittenAndReadBack) {
  const std::string json =
      R"({"quant_type": "fp4", "blocksize": 128, "dtype": "float16", "shape": [3, 5], )"
      R"("nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.12345679104328156})";
  EXPECT_EQ(quant_state_json(parse_quant_state(json, FourBit::fp4, "x")), json);
}

TEST(QuantState, DamageIsNamed) {
  const std::string good = R"({"quant_type":"nf4","blocksize":64,"dtype":"float32","shape":[4,4],)"
                           R"("nested_blocksize":256,"nested_dtype":"float32","nested_offset":0.5})";
  ASSERT_EQ(parse_quant_state(good, FourBit::nf4, "x").blocksize, 64);
  const std::pair<const char*, const char*> damages[] = {{R"("nf4")", R"("fp4")"},
                                                         {R"("nf4")", "4"},
                                                         {":64", ":0"},
                                                         {":64", ":48"},
                                                         {":64", ":16"},
                                                         {":64", ":8192"},
                                                         {":64", ":\"64\""},
                                                         {":64", ":-64"},
                                                         {":64", ":1e30"},
                                                         {"float32\",\"sh", "int8\",\"sh"},
                                                         {"[4,4]", "[4]"},
                                                         {"[4,4]", "[4,0]"},
                                                         {"[4,4]", "[4,-1]"},
                                                         {"[4,4]", "[4,4.5]"},
                                                         {"[4,4]", "[4,99999999999]"},
                                                         {"[4,4]", "null"},
                                                         {":256", ":0"},
                                                         {":256", ":300"},
                                                         {":256", ":1048576"},
                                                         {":0.5", ":null"},
                                                         {":0.5", ":1e39"},
                                                         {"\"float32\",\"nested_o", "\"float16\",\"nested_o"},
                                                         {"\"shape\"", "\"shapes\""},
                                                         {"nested_offset", "offset"},
                                                         {"{", "["}};
  for (const auto& [from, to] : damages) {
    std::string bad = good;
    bad.replace(bad.find(from), std::string_view(from).size(), to);
    const Error error = error_of([&] { parse_quant_state(bad, FourBit::nf4, "file: tensor"); });
    EXPECT_EQ(error.kind(), ErrorKind::input) << bad;
    EXPECT_THAT(error.what(), HasSubstr("file: tensor")) << bad;
  }
}

/// The parts of a matrix with one of them replaced.
class DamagedMatrix : public ::testing::Test {
 protected:
  Error with(const std::string& part, ConstTensor instead) {
    const SafetensorsReader golden(kFolders + "bnb_model_nf4");
    NamedTensors tensors;
    for (const auto& [name, tensor] : golden.tensors())
      if (name.starts_with(kWeight)) tensors.emplace_back(name, name == kWeight + part ? instead : tensor);
    std::erase_if(tensors, [](const auto& t) { return t.second.dtype == DType::boolean; });
    write_safetensors(folder_ / "model.safetensors", tensors);
    const SafetensorsReader reader(folder_ / "model.safetensors");
    return error_of([&] { read_matrix4(reader, kWeight); });
  }
  TempFolder folder_;
};

TEST_F(DamagedMatrix, EveryPartIsChecked) {
  std::vector<std::uint8_t> bytes(300);
  std::vector<float> floats(256, 0.5F);
  const auto u8 = [&](std::int64_t n) {
    return view_of(std::span<const std::uint8_t>(bytes).first(std::size_t(n)), {n});
  };
  const auto f32 = [&](std::int64_t n) { return view_of(std::span<const float>(floats).first(std::size_t(n)), {n}); };
  for (const auto& [part, instead] : {std::pair<std::string, ConstTensor>{"", u8(7)},
                                      {".absmax", u8(23)},
                                      {".absmax", f32(24)},
                                      {".quant_map", f32(16)},
                                      {".quant_map", f32(15)},
                                      {".nested_absmax", f32(2)},
                                      {".nested_absmax", u8(1)},
                                      {".nested_quant_map", f32(255)},
                                      {".quant_state.bitsandbytes__nf4", f32(3)},
                                      {".quant_state.bitsandbytes__nf4", u8(3)}}) {
    const Error error = with(part, instead);
    EXPECT_EQ(error.kind(), ErrorKind::input) << part;
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.safetensors"), HasSubstr(kWeight + part)));
  }
}

TEST_F(DamagedMatrix, MissingPartsAreNamed) {
  const ConstTensor left_out{nullptr, DType::boolean, {0}, {}};
  for (const char* part : {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ""})
    EXPECT_THAT(with(part, left_out).what(), HasSubstr(kWeight + part));
}

TEST(Bnb, PartsAreKnownByTheirNames) {
  for (const char* folder : {"bnb_model_nf4", "bnb_model_fp4", "bnb_model_int8"}) {
    const SafetensorsReader golden(kFolders + folder);
    for (const auto& [name, tensor] : golden.tensors())
      EXPECT_EQ(is_quant_part(name), !name.ends_with(".weight")) << name;
  }
}

TEST(BnbConfig, IsWrittenAndReadAsTransformersDoes) {
  for (const char* folder : {"bnb_model_nf4", "bnb_model_fp4", "bnb_model_int8"}) {
    const Json config = read_json(kFolders + folder + "/config.json");
    const auto read = bnb_config(config, "config.json");
    ASSERT_TRUE(read);
    EXPECT_EQ(dump_json(bnb_config_json(*read)), dump_json(config["quantization_config"])) << folder;
  }
  EXPECT_FALSE(bnb_config(Json::object(), "config.json"));
}

TEST(BnbConfig, WhatCannotBeReadIsNamed) {
  const std::pair<const char*, const char*> bad[] = {
      {R"({"quant_method": "gptq", "bits": 4})", "gptq"},
      {R"({"quant_method": "bitsandbytes"})", "load_in_4bit"},
      {R"({"load_in_4bit": true, "load_in_8bit": true})", "load_in_4bit"},
      {R"({"load_in_4bit": "yes"})", "load_in_4bit"},
      {R"({"load_in_4bit": true, "bnb_4bit_quant_type": "int4"})", "int4"},
      {R"({"load_in_4bit": true, "bnb_4bit_compute_dtype": "float8"})", "float8"},
      {R"({"load_in_4bit": true, "llm_int8_skip_modules": "lm_head"})", "llm_int8_skip_modules"},
      {R"({"load_in_4bit": true, "llm_int8_skip_modules": [3]})", "llm_int8_skip_modules"},
      {R"({"load_in_4bit": true, "llm_int8_skip_modules": ["layer.*"]})", "layer.*"},
      {R"([])", "object"}};
  for (const auto& [text, named] : bad) {
    const Json config{{"quantization_config", Json::parse(text)}};
    const Error error = error_of([&] { bnb_config(config, "folder/config.json"); });
    EXPECT_EQ(error.kind(), ErrorKind::input) << text;
    EXPECT_THAT(error.what(), AllOf(HasSubstr("folder/config.json"), HasSubstr(named)));
  }
}

/// Expected results are those of transformers.quantizers.quantizers_utils.should_convert_module for the same names.
TEST(BnbConfig, SkipsTheModulesThatTransformersSkips) {
  const BnbConfig c{.skip_modules = {"model.layers.1", "down_proj", "model.layers.3."}};
  EXPECT_TRUE(c.skips("lm_head"));
  EXPECT_TRUE(c.skips("model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(c.skips("model.layers.11.mlp.up_proj"));
  EXPECT_TRUE(c.skips("model.layers.11.mlp.down_proj"));
  EXPECT_TRUE(c.skips("model.layers.3.mlp.up_proj"));
  EXPECT_FALSE(c.skips("layers.1.mlp.up_proj"));
}

}  // namespace
}  // namespace qtrain
