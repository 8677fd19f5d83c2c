#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "convert/gguf/import.h"
#include "core/formats/safetensors.h"
#include "tests/convert/gguf/export_support.h"
#include "tests/core/temp_folder.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain::testing {
namespace {

/// Files from gguf-py, converted to a model folder and back.
class GgufRoundTrip : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    import_gguf({.gguf = kExportGoldens / (GetParam() + ".gguf"), .output = folder_ / "model"});
    exported(folder_ / "model", folder_ / "out.gguf");
  }
  TempFolder folder_;
};

TEST_P(GgufRoundTrip, TensorsHaveTheNamesShapesAndOrderOfTheReference) {
  const GgufFile reference(kExportGoldens / (GetParam() + ".gguf")), ours(folder_ / "out.gguf");
  ASSERT_EQ(ours.tensors().size(), reference.tensors().size());
  for (const auto& [name, tensor] : reference.tensors()) {
    const auto& t = ours.tensor(name);
    EXPECT_EQ(t.shape, tensor.shape) << name;
    const auto values = values_of(t), expected = values_of(tensor);
    const double tolerance = name == "rope_freqs.weight" ? 1e-6 : 0;  // the exporter computes it in f32
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], expected[i], tolerance * std::abs(expected[i])) << name << " " << i;
  }
}

TEST_P(GgufRoundTrip, MetadataSayWhatTheReferenceSays) {
  const GgufFile reference(kExportGoldens / (GetParam() + ".gguf")), ours(folder_ / "out.gguf");
  for (const auto& [key, value] : reference.values()) {
    if (key.starts_with("general.") || key == "tokenizer.ggml.scores") continue;  // only the order of scores matters
    ASSERT_NE(ours.find(key), nullptr) << key;
    EXPECT_EQ(dump_json(*ours.find(key)), dump_json(value)) << key;
  }
  EXPECT_EQ(ours.text("general.architecture"), reference.text("general.architecture"));
}

TEST_P(GgufRoundTrip, ImportingGivesTheSameFolder) {
  import_gguf({.gguf = folder_ / "out.gguf", .output = folder_ / "again"});
  const SafetensorsReader first(folder_ / "model"), again(folder_ / "again");
  ASSERT_EQ(again.tensors().size(), first.tensors().size());
  for (const auto& [name, tensor] : first.tensors()) {
    const auto t = again.at(name);
    ASSERT_EQ(t.dtype, tensor.dtype) << name;
    EXPECT_EQ(std::memcmp(t.data, tensor.data, tensor.bytes()), 0) << name;
  }
  for (const auto* file : {"config.json", "generation_config.json", "special_tokens_map.json"})
    EXPECT_EQ(dump_json(read_json(folder_ / "again" / file)), dump_json(read_json(folder_ / "model" / file))) << file;
  const auto tokenizer = load_tokenizer(folder_ / "again");
  const Json rows = read_json(kExportGoldens / "expected.json")[GetParam()]["ids"];
  for (const auto& row : rows)
    EXPECT_EQ(tokenizer->encode(row[0].get<std::string>()), row[1].get<std::vector<std::int32_t>>()) << row[0];
}

INSTANTIATE_TEST_SUITE_P(All, GgufRoundTrip,
                         ::testing::Values("smollm", "qwen3", "qwen2", "spm", "gemma2", "qwen3moe", "smollm3", "olmo2",
                                           "granite", "gemma3", "mixtral", "qwen2moe", "olmo3", "exaone4", "hunyuan",
                                           "olmoe"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace qtrain::testing
