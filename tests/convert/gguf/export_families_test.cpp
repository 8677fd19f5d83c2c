#include <gmock/gmock.h>

#include <deque>
#include <limits>

#include "convert/adapter_deltas.h"
#include "convert/gguf/export_adapter.h"
#include "convert/gguf/import.h"
#include "core/formats/safetensors.h"
#include "tests/convert/gguf/export_support.h"
#include "tests/core/temp_folder.h"

namespace qtrain::testing {
namespace {

using ::testing::HasSubstr;

/// A model of another family, whose config can be changed.
struct FamilyCase {
  const char* golden;
  Json changes;
  const char* cause;
};

const Json kLlama3Rope{{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 64}};

TEST(GgufFamilies, WhatReadersOfTheFileWouldComputeOtherwiseIsRefused) {
  const FamilyCase cases[] = {
      {"gemma2", {{"query_pre_attn_scalar", 64}}, "\"query_pre_attn_scalar\""},
      {"gemma2", {{"attn_logit_softcapping", nullptr}}, "\"attn_logit_softcapping: null\""},
      {"gemma2", {{"final_logit_softcapping", nullptr}}, "\"final_logit_softcapping: null\""},
      {"gemma2", {{"hidden_activation", "silu"}}, "\"hidden_activation\""},
      {"gemma2", {{"sliding_window", nullptr}, {"layer_types", nullptr}}, "\"sliding_window: null\""},
      {"qwen3", {{"rope_scaling", kLlama3Rope}}, "\"rope_type: llama3\""},
      {"gemma2", {{"tie_word_embeddings", false}}, "\"tie_word_embeddings: false\""},
      {"gemma2", {{"layer_types", {"sliding_attention", "sliding_attention"}}}, "\"layer_types\""},
      {"gemma2", {{"layer_types", {"full_attention", "sliding_attention"}}}, "\"layer_types\""},
      {"qwen3moe", {{"norm_topk_prob", false}}, "\"norm_topk_prob: false\""},
      {"qwen3moe", {{"mlp_only_layers", {0}}}, "\"mlp_only_layers\""},
      {"qwen3moe", {{"attention_bias", true}}, "\"attention_bias\""},
      {"qwen2moe", {{"norm_topk_prob", true}}, "\"norm_topk_prob: true\""},
      {"qwen2moe", {{"mlp_only_layers", {0}}}, "\"mlp_only_layers\""},
      {"qwen2moe", {{"qkv_bias", false}}, "\"qkv_bias: false\""},
      {"olmo3", {{"sliding_window", nullptr}}, "\"sliding_window: null\""},
      {"exaone4", {{"sliding_window", 8}, {"layer_types", {"sliding_attention"}}}, "\"sliding_window\""},
      {"olmoe", {{"norm_topk_prob", true}}, "\"norm_topk_prob: true\""},
      {"hunyuan", {{"attention_bias", true}}, "\"attention_bias\""}};
  for (const auto& [golden, changes, cause] : cases) {
    TempFolder folder;
    const auto model = folder / "model", output = folder / "out.gguf";
    import_gguf({.gguf = kExportGoldens / (std::string(golden) + ".gguf"), .output = model});
    Json config = read_json(model / "config.json");
    for (const auto& [key, value] : changes.items()) config[key] = value;
    write_json(model / "config.json", config);
    const auto error = error_of([&, &m = model, &o = output] { exported(m, o); });
    EXPECT_EQ(error.kind(), ErrorKind::input) << cause;
    EXPECT_THAT(error.what(), HasSubstr(cause));
    EXPECT_THAT(error.what(), HasSubstr("config.json"));
  }
}

// After training in f32, norms do not fit a shorter type, even if matrices are exported in one.
TEST(GgufFamilies, NormsOfGemmaDecideOnTheTypeToo) {
  TempFolder folder;
  import_gguf({.gguf = kExportGoldens / "gemma2.gguf", .output = folder / "model"});
  const SafetensorsReader old(folder / "model");
  NamedTensors tensors;
  std::deque<std::vector<float>> memory;
  for (const auto& [name, tensor] : old.tensors()) {
    auto& values = memory.emplace_back();
    for (const F16 x : tensor.span<F16>()) values.push_back(float(x) + (name.find("norm") != name.npos ? 1e-4F : 0));
    tensors.emplace_back(name, ConstTensor{reinterpret_cast<std::byte*>(values.data()), DType::f32, tensor.shape, {}});
  }
  std::filesystem::create_directory(folder / "trained");
  write_sharded(folder / "trained", tensors);
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"})
    std::filesystem::copy_file(folder / "model" / file, folder / "trained" / file);
  exported(folder / "trained", folder / "out.gguf", GgufType::f16);
  import_gguf({.gguf = folder / "out.gguf", .output = folder / "again"});
  EXPECT_EQ(read_json(folder / "again/config.json")["torch_dtype"], "float32");
  const SafetensorsReader again(folder / "again");
  const auto first = again.at("model.norm.weight").span<float>();
  const auto expected =
      std::find_if(tensors.begin(), tensors.end(), [](auto& t) { return t.first == "model.norm.weight"; });
  for (std::size_t i = 0; i < first.size(); ++i)  // the offset of 1 is added and subtracted in f32
    EXPECT_NEAR(first[i], expected->second.span<float>()[i], std::numeric_limits<float>::epsilon());
}

// transformers converts Gemma's tokenizer with a pre-tokenizer that splits at blanks, although the normalizer leaves
// none.
TEST(GgufFamilies, TheTokenizerOfTransformersForGemmaIsExported) {
  TempFolder folder;
  import_gguf({.gguf = kExportGoldens / "gemma2.gguf", .output = folder / "model"});
  exported(folder / "model", folder / "plain.gguf");
  Json tokenizer = read_json(folder / "model/tokenizer.json");
  tokenizer["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}, {"invert", false}};
  write_json(folder / "model/tokenizer.json", tokenizer);
  exported(folder / "model", folder / "split.gguf");
  EXPECT_EQ(read_text(folder / "split.gguf"), read_text(folder / "plain.gguf"));
}

TEST(GgufFamilies, AdaptersOnExpertsAreRefused) {
  TempFolder folder;
  const std::filesystem::path goldens = QTRAIN_SOURCE_DIR "/tests/golden/data";
  const auto error = error_of([&] {
    export_gguf_adapter(
        {.model = goldens / "qwen3_moe", .adapter = goldens / "lora_qwen3_moe/adapter", .output = folder / "out.gguf"});
  });
  EXPECT_EQ(error.kind(), ErrorKind::input);
  // Merging applies them to every weight, but no weight has its own pair of factors.
  const AdapterDeltas deltas(goldens / "lora_qwen3_moe/adapter");
  EXPECT_THAT(error_of([&] { (void)deltas.factors(); }).what(), HasSubstr("target_parameters"));
}

TEST(GgufFamilies, RoutersStayF32WhereExpertsAreQuantized) {
  TempFolder folder;
  import_gguf({.gguf = kExportGoldens / "qwen3moe.gguf", .output = folder / "model"});
  exported(folder / "model", folder / "out.gguf", GgufType::q8_0);
  const GgufFile file(folder / "out.gguf");
  EXPECT_EQ(file.tensor("blk.1.ffn_gate_inp.weight").type, GgufType::f32);
  EXPECT_EQ(file.tensor("blk.1.ffn_down_exps.weight").type, GgufType::q8_0);
  EXPECT_EQ(file.tensor("blk.1.attn_q.weight").type, GgufType::q8_0);
}

}  // namespace
}  // namespace qtrain::testing
