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
  /// In folder_ / "adapter", of rank 1 on o_proj.
  template <class T>
  void make_adapter(DType dtype = dtype_of<T>) {
    const std::string layer = "model.layers.0.self_attn.o_proj", factor = "base_model.model." + layer;
    const Shape shape = SafetensorsReader(dense_).at(layer + ".weight").shape;
    std::vector<T> a(static_cast<std::size_t>(shape[1]), T(0.5F)), b(static_cast<std::size_t>(shape[0]), T(0.25F));
    ConstTensor in = view_of(std::span(a), {1, shape[1]}), out = view_of(std::span(b), {shape[0], 1});
    in.dtype = out.dtype = dtype;
    fs::create_directory(folder_ / "adapter");
    write_safetensors(folder_ / "adapter/adapter_model.safetensors",
                      NamedTensors{{factor + ".lora_A.weight", in}, {factor + ".lora_B.weight", out}});
    write_json(folder_ / "adapter/adapter_config.json",
               {{"peft_type", "LORA"}, {"r", 1}, {"lora_alpha", 1}, {"target_modules", {"o_proj"}}});
  }
  void merge(const fs::path& model) {
    merge_adapters(ctx_, {.model = model, .output = folder_ / "merged", .adapters = {{.folder = folder_ / "adapter"}}});
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

// Merged and unquantized matrices are float32 then.
TEST_F(Fp8Model, IsExpandedToFloat32ForDoubles) {
  Json config = read_json(fp8_ / "config.json");
  config["torch_dtype"] = "float64";
  write_json(fp8_ / "config.json", config);
  quantize_folder(ctx_, {.model = fp8_, .output = folder_ / "nf4", .matrices = {}, .skip_modules = {"down_proj"}});
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  const SafetensorsReader dense(dense_), quantized(folder_ / "nf4");
  const ConstTensor want = dense.at(name), got = quantized.at(name);
  ASSERT_EQ(got.dtype, DType::f32);
  for (std::int64_t i = 0; i < want.numel(); ++i)
    ASSERT_EQ(got.as<float>()[i], static_cast<float>(want.as<Bf16>()[i])) << i;
}

TEST_F(Fp8Model, TakesTheChangesOfAnAdapter) {
  make_adapter<float>();
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

TEST_F(Fp8Model, IsRefusedWithoutItsConfig) {
  fs::copy_file(dense_ / "config.json", fp8_ / "config.json", fs::copy_options::overwrite_existing);
  make_adapter<float>();
  for (const auto& convert : std::vector<std::function<void()>>{
           [&] { quantize_folder(ctx_, {.model = fp8_, .output = folder_ / "nf4", .skip_modules = {"down_proj"}}); },
           [&] { merge(fp8_); }}) {
    const Error e = error_of(convert);
    EXPECT_EQ(e.kind(), ErrorKind::input);
    EXPECT_THAT(e.what(), ::testing::AllOf(::testing::HasSubstr("_proj.weight"),
                                           ::testing::HasSubstr("float8_e4m3fn, but no quantization_config")));
  }
}

TEST_F(Fp8Model, TakesNoAdapterInFp8) {
  make_adapter<std::uint8_t>(DType::f8_e4m3);
  const Error e = error_of([&] { merge(dense_); });
  EXPECT_EQ(e.kind(), ErrorKind::input);
  EXPECT_THAT(e.what(), ::testing::HasSubstr("o_proj.lora_A.weight: has dtype float8_e4m3fn"));
}

}  // namespace
}  // namespace qtrain::testing
