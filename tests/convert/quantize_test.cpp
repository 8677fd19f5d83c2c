#include "convert/quantize.h"

#include <gmock/gmock.h>

#include "core/formats/json.h"
#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TempFolder;

namespace fs = std::filesystem;

const fs::path kBnbFolders = QTRAIN_SOURCE_DIR "/tests/quant/goldens";

void expect_same_file(const fs::path& got, const fs::path& want) {
  EXPECT_TRUE(read_text(got) == read_text(want)) << got << " is not " << want;
}

class Quantize : public ::testing::Test {
 protected:
  Ctx ctx_{{}, MatmulPrecision::storage, 2};
  TempFolder folder_;
};

TEST_F(Quantize, WritesTheReferencesFiles) {
  const QuantizeReport report =
      quantize_folder(ctx_, {.model = kBnbFolders / "bnb_model", .output = folder_ / "nf4", .matrices = {}});
  expect_same_file(folder_ / "nf4/config.json", kBnbFolders / "bnb_model_nf4/config.json");
  expect_same_file(folder_ / "nf4/model.safetensors", kBnbFolders / "bnb_model_nf4/model.safetensors");
  EXPECT_EQ(report.matrices, 7);
  EXPECT_EQ(report.parameters, 32 * 32 * 3 + 32 * 48 * 3);
  EXPECT_LT(report.bytes_after, fs::file_size(folder_ / "nf4/model.safetensors"));

  quantize_folder(ctx_, {.model = kBnbFolders / "bnb_model",
                         .output = folder_ / "fp4",
                         .matrices = {.type = FourBit::fp4, .nested = false},
                         .compute_dtype = DType::f32,
                         .skip_modules = {"down_proj"}});
  expect_same_file(folder_ / "fp4/config.json", kBnbFolders / "bnb_model_fp4/config.json");
  expect_same_file(folder_ / "fp4/model.safetensors", kBnbFolders / "bnb_model_fp4/model.safetensors");
}

TEST_F(Quantize, RefusesWhatWouldLoseWeights) {
  const Error own = error_of(
      [&] { quantize_folder(ctx_, {.model = kBnbFolders / "bnb_model", .output = kBnbFolders / "bnb_model"}); });
  EXPECT_EQ(own.kind(), ErrorKind::usage);
  const Error twice =
      error_of([&] { quantize_folder(ctx_, {.model = kBnbFolders / "bnb_model_nf4", .output = folder_ / "again"}); });
  EXPECT_EQ(twice.kind(), ErrorKind::input);
  EXPECT_THAT(twice.what(), HasSubstr("bnb_model_nf4"));
  const Error nothing = error_of([&] {
    quantize_folder(
        ctx_, {.model = kBnbFolders / "bnb_model", .output = folder_ / "none", .skip_modules = {"self_attn", "proj"}});
  });
  EXPECT_EQ(nothing.kind(), ErrorKind::usage);
  EXPECT_FALSE(fs::exists(folder_ / "none"));
}

TEST_F(Quantize, ABareModelsLayersHaveTheNamesOfTheWholeOne) {
  const SafetensorsReader source(kBnbFolders / "bnb_model");
  NamedTensors tensors;
  for (const auto& [name, tensor] : source.tensors())
    if (name.starts_with("model.")) tensors.emplace_back(name.substr(6), tensor);
  write_safetensors(folder_ / "model.safetensors", tensors);
  write_file(folder_ / "config.json", read_text(kBnbFolders / "bnb_model/config.json"));
  const auto quantized = [&](const std::vector<std::string>& skip) {
    return quantize_folder(ctx_, {.model = folder_.path(), .output = folder_ / "out", .skip_modules = skip}).matrices;
  };
  EXPECT_EQ(quantized({}), 7);
  EXPECT_EQ(quantized({"model.layers.0.mlp"}), 4);
  EXPECT_TRUE(SafetensorsReader(folder_ / "out").contains("layers.0.self_attn.q_proj.weight.absmax"));
}

TEST_F(Quantize, NamesTheTensorWithANaN) {
  const SafetensorsReader source(kBnbFolders / "bnb_model");
  const std::string name = "model.layers.0.self_attn.v_proj.weight";
  const auto values = source.at(name).span<Bf16>();
  std::vector<Bf16> damaged(values.begin(), values.end());
  damaged[9] = std::nanf("");
  NamedTensors tensors;
  for (const auto& [key, tensor] : source.tensors())
    tensors.emplace_back(key, key == name ? view_of(std::span<const Bf16>(damaged), tensor.shape) : tensor);
  write_safetensors(folder_ / "model.safetensors", tensors);
  write_file(folder_ / "config.json", read_text(kBnbFolders / "bnb_model/config.json"));
  const Error error = error_of([&] { quantize_folder(ctx_, {.model = folder_.path(), .output = folder_ / "out"}); });
  EXPECT_EQ(error.kind(), ErrorKind::input);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr("element 9 is nan")));
}

}  // namespace
}  // namespace qtrain
