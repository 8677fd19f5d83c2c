// Converting a model in FP8 gives the same as converting a bfloat16 model with the same values.
#include <gmock/gmock.h>

#include <random>

#include "convert/gguf/import.h"
#include "convert/merge.h"
#include "convert/quantize.h"
#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "model/hf_folder.h"
#include "model/model_config.h"
#include "tests/convert/gguf/export_support.h"
#include "tests/core/temp_folder.h"

namespace qtrain::testing {
namespace {

namespace fs = std::filesystem;

bool is_projection(const std::string& name) {
  return name.ends_with("_proj.weight");
}

Bf16 e4m3_value(unsigned code) {
  const unsigned exponent = code / 8 % 16, mantissa = code % 8;
  const double size = exponent == 0 ? mantissa / 8.0 * std::exp2(-6) : (1 + mantissa / 8.0) * std::exp2(exponent - 7.0);
  return Bf16(static_cast<float>(code < 128 ? size : -size));
}

/// A one-layer Llama whose projections are in FP8, with scales that are powers of two, and the same in bfloat16.
class Fp8Model : public ::testing::Test {
 protected:
  void SetUp() override {
    import_gguf({.gguf = kExportGoldens / "smollm.gguf", .output = fp8_, .dtype = DType::bf16});
    fs::copy(fp8_, dense_);
    std::mt19937 random(5);
    std::deque<std::vector<std::uint8_t>> codes;
    std::deque<std::vector<float>> scales;
    std::deque<std::vector<Bf16>> values;
    const SafetensorsReader source(dense_);
    NamedTensors in_fp8, in_bf16;
    for (const auto& [name, tensor] : source.tensors()) {
      if (!is_projection(name)) {
        in_fp8.emplace_back(name, tensor);
        in_bf16.emplace_back(name, tensor);
        continue;
      }
      auto& code = codes.emplace_back();
      auto& scale = scales.emplace_back();
      auto& value = values.emplace_back();
      for (std::int64_t row = 0; row < tensor.shape[0]; ++row) {
        const int exponent = -static_cast<int>(5 + random() % 4);
        scale.push_back(std::ldexp(1.F, exponent));
        for (std::int64_t column = 0; column < tensor.shape[1]; ++column) {
          code.push_back(static_cast<std::uint8_t>(random() % 2 * 128 + random() % 72));
          value.push_back(Bf16(std::ldexp(static_cast<float>(e4m3_value(code.back())), exponent)));
        }
      }
      const auto* bytes = reinterpret_cast<const std::byte*>(code.data());
      in_fp8.emplace_back(name, ConstTensor{bytes, DType::f8_e4m3, tensor.shape, {}});
      in_fp8.emplace_back(name + "_scale_inv", view_of(std::span<const float>(scale), {tensor.shape[0], 1}));
      in_bf16.emplace_back(name, view_of(std::span<const Bf16>(value), tensor.shape));
    }
    ASSERT_EQ(codes.size(), 7U);
    write(fp8_, in_fp8);
    write(dense_, in_bf16);
    Json config = read_json(fp8_ / "config.json");
    config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", nullptr}};
    write_json(fp8_ / "config.json", config);
  }
  void write(const fs::path& folder, const NamedTensors& tensors) {
    write_safetensors(folder_ / "new.safetensors", tensors);
    fs::rename(folder_ / "new.safetensors", folder / "model.safetensors");
  }
  static void expect_same(const fs::path& got, const fs::path& want) {
    EXPECT_TRUE(read_text(got) == read_text(want)) << got << " is not " << want;
  }

  Ctx ctx_{{}, MatmulPrecision::storage, 2};
  TempFolder folder_;
  fs::path fp8_ = folder_ / "fp8", dense_ = folder_ / "dense";
};

TEST_F(Fp8Model, QuantizesTo4Bits) {
  for (const fs::path& model : {fp8_, dense_})
    quantize_folder(
        ctx_,
        {.model = model, .output = folder_ / "of" / model.filename(), .matrices = {}, .skip_modules = {"down_proj"}});
  for (const char* file : {"config.json", "model.safetensors"})
    expect_same(folder_ / "of/fp8" / file, folder_ / "of/dense" / file);
}

TEST_F(Fp8Model, TakesTheChangesOfAnAdapter) {
  const std::string layer = "model.layers.0.self_attn.o_proj", factor = "base_model.model." + layer;
  const Shape shape = SafetensorsReader(dense_).at(layer + ".weight").shape;
  std::vector<float> a(static_cast<std::size_t>(shape[1]), 0.5F), b(static_cast<std::size_t>(shape[0]), 0.25F);
  fs::create_directory(folder_ / "adapter");
  write_safetensors(folder_ / "adapter/adapter_model.safetensors",
                    NamedTensors{{factor + ".lora_A.weight", view_of(std::span(a), {1, shape[1]})},
                                 {factor + ".lora_B.weight", view_of(std::span(b), {shape[0], 1})}});
  write_json(folder_ / "adapter/adapter_config.json",
             {{"peft_type", "LORA"}, {"r", 1}, {"lora_alpha", 1}, {"target_modules", {"o_proj"}}});
  for (const fs::path& model : {fp8_, dense_})
    merge_adapters(
        ctx_,
        {.model = model, .output = folder_ / "of" / model.filename(), .adapters = {{.folder = folder_ / "adapter"}}});
  expect_same(folder_ / "of/fp8/model.safetensors", folder_ / "of/dense/model.safetensors");
  EXPECT_EQ(read_json(folder_ / "of/fp8/config.json"), read_json(dense_ / "config.json"));
}

TEST_F(Fp8Model, IsExported) {
  for (const fs::path& model : {fp8_, dense_})
    export_gguf(ctx_, {.model = model, .output = folder_ / (model.filename().string() + ".gguf"), .name = "model"});
  expect_same(folder_ / "fp8.gguf", folder_ / "dense.gguf");
}

TEST_F(Fp8Model, IsRefusedIfItsScalesDoNotFit) {
  Json config = read_json(fp8_ / "config.json");
  config["quantization_config"]["weight_block_size"] = {8, 8};
  write_json(fp8_ / "config.json", config);
  for (const auto& convert :
       std::vector<std::function<void()>>{[&] { quantize_folder(ctx_, {.model = fp8_, .output = folder_ / "nf4"}); },
                                          [&] { exported(fp8_, folder_ / "out.gguf"); }}) {
    const Error e = error_of(convert);
    EXPECT_EQ(e.kind(), ErrorKind::input);
    EXPECT_THAT(e.what(), ::testing::AllOf(::testing::HasSubstr("_proj.weight"), ::testing::HasSubstr("scales")));
  }
}

}  // namespace
}  // namespace qtrain::testing
