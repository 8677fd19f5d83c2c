#include "convert/gguf/export.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "convert/gguf/import.h"
#include "convert/quantize.h"
#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/convert/gguf/export_support.h"
#include "tests/core/temp_folder.h"
#include "text/tokenizer/load.h"

namespace qtrain::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A one-layer Llama with the tokenizer of the smallest golden, whose config and tokenizer can be changed.
class GgufExport : public ::testing::Test {
 protected:
  void SetUp() override { import_gguf({.gguf = kExportGoldens / "smollm.gguf", .output = model_}); }

  void change(const std::string& file, const Json& changes) {
    Json json = read_json(model_ / file);
    json.merge_patch(changes);
    write_json(model_ / file, json);
  }
  /// Replaces the layer's weights by random ones, with an MLP of `width`.
  void widen(std::int64_t width) {
    const SafetensorsReader old(model_);
    NamedTensors tensors;
    std::vector<std::vector<float>> memory;
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.05F);
    for (auto [name, tensor] : old.tensors()) {
      Shape shape = tensor.shape;
      if (name.find("mlp.") != std::string::npos) shape.dims[name.ends_with("down_proj.weight") ? 1 : 0] = width;
      auto& values = memory.emplace_back(static_cast<std::size_t>(shape.numel()));
      for (float& v : values) v = normal(random);
      tensors.emplace_back(name, ConstTensor{reinterpret_cast<std::byte*>(values.data()), DType::f32, shape, {}});
    }
    write_sharded(folder_ / "wide", tensors);
    std::filesystem::rename(folder_ / "wide/model.safetensors", model_ / "model.safetensors");
    change("config.json", {{"intermediate_size", width}});
  }
  Error export_error(std::optional<GgufType> type = {}) {
    const auto error = error_of([&] { exported(model_, folder_ / "out.gguf", type); });
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out.gguf"));
    return error;
  }

  TempFolder folder_;
  std::filesystem::path model_ = [this] {
    std::filesystem::create_directory(folder_ / "wide");
    return folder_ / "model";
  }();
};

TEST_F(GgufExport, QuantizedTypesFallBackWhereRowsAreNoWholeBlocks) {
  widen(256);
  struct Case {
    const char* type;
    std::uint32_t file_type;
    GgufType embedding, q, down;
    double error;  // of a value, relative to the largest in its block
  };
  for (const Case& c : {Case{"q8_0", 7, GgufType::q8_0, GgufType::q8_0, GgufType::q8_0, 0.5 / 127 + 1e-3},
                        Case{"q4_0", 2, GgufType::q8_0, GgufType::q4_0, GgufType::q4_0, 1.01 / 8},
                        Case{"q4_k", 14, GgufType::q8_0, GgufType::q5_0, GgufType::q4_k, 1.01 / 8}}) {
    exported(model_, folder_ / "out.gguf", gguf_export_type(c.type));
    const GgufFile file(folder_ / "out.gguf");
    EXPECT_EQ(file.integer("general.file_type"), c.file_type);
    EXPECT_EQ(file.integer("general.quantization_version"), 2);
    EXPECT_EQ(file.tensor("token_embd.weight").type, c.embedding);
    EXPECT_EQ(file.tensor("blk.0.attn_q.weight").type, c.q);
    EXPECT_EQ(file.tensor("blk.0.ffn_down.weight").type, c.down);
    EXPECT_EQ(file.tensor("blk.0.attn_norm.weight").type, GgufType::f32);
    const SafetensorsReader source(model_);
    const auto exact = source.at("model.layers.0.mlp.down_proj.weight").span<float>();
    const auto values = values_of(file.tensor("blk.0.ffn_down.weight"));
    for (std::size_t i = 0; i < values.size(); ++i) {
      float largest = 0;
      for (std::size_t k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) largest = std::max(largest, std::abs(exact[k]));
      ASSERT_NEAR(values[i], exact[i], c.error * largest) << c.type << " " << i;
    }
  }
  widen(40);
  exported(model_, folder_ / "out.gguf", GgufType::q4_0);
  EXPECT_EQ(GgufFile(folder_ / "out.gguf").tensor("blk.0.ffn_down.weight").type, GgufType::f16);
}

TEST_F(GgufExport, FloatTypesRoundToNearest) {
  const SafetensorsReader source(model_);
  const auto exact = source.at("model.embed_tokens.weight").span<float>();
  for (const auto type : {GgufType::f16, GgufType::bf16}) {
    const auto report = exported(model_, folder_ / "out.gguf", type);
    EXPECT_EQ(report.tensors.at(GgufType::f32), 3);
    const GgufFile file(folder_ / "out.gguf");
    const auto values = values_of(file.tensor("token_embd.weight"));
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], type == GgufType::f16 ? float(F16(exact[i])) : float(Bf16(exact[i])));
  }
}

TEST_F(GgufExport, QuantizedMatricesAreTheValuesThatTheyStandFor) {
  Ctx ctx({}, MatmulPrecision::storage, 2);
  quantize_folder(ctx, {.model = model_, .output = folder_ / "nf4", .matrices = {.nested = false}});
  exported(folder_ / "nf4", folder_ / "out.gguf", GgufType::f32);
  const SafetensorsReader codes(folder_ / "nf4");
  const std::string name = "model.layers.0.self_attn.v_proj.weight";
  const auto nibbles = codes.at(name).span<std::uint8_t>();
  const auto absmax = codes.at(name + ".absmax").span<float>(), map = codes.at(name + ".quant_map").span<float>();
  const GgufFile file(folder_ / "out.gguf");
  const auto values = values_of(file.tensor("blk.0.attn_v.weight"));
  ASSERT_EQ(values.size(), 2 * nibbles.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int code = i % 2 == 0 ? nibbles[i / 2] >> 4 : nibbles[i / 2] & 15;
    ASSERT_EQ(values[i], map[static_cast<std::size_t>(code)] * absmax[i / 64]) << i;
  }
  const SafetensorsReader before(model_);
  EXPECT_EQ(file.tensors().size(), before.tensors().size());
}

TEST_F(GgufExport, RopeParametersComeBack) {
  const Json linear{{"rope_type", "linear"}, {"factor", 4.0}};
  const Json llama3{{"rope_type", "llama3"},
                    {"factor", 8.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 64}};
  const Json yarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  Json other = llama3;
  other.update({{"low_freq_factor", 0.25}, {"high_freq_factor", 12.0}, {"original_max_position_embeddings", 640}});
  Json more = yarn;
  more.update({{"attention_factor", 1.25}, {"beta_fast", 16.0}, {"beta_slow", 2.0}});
  for (const Json& rope : {linear, llama3, other, yarn, more}) {
    change("config.json", {{"rope_scaling", nullptr}});
    change("config.json", {{"rope_scaling", rope}});
    const auto report = exported(model_, folder_ / "out.gguf");
    EXPECT_EQ(report.notes.size(), rope == more ? 1u : 0u);
    import_gguf({.gguf = folder_ / "out.gguf", .output = folder_ / "again"});
    const Json again = read_json(folder_ / "again/config.json")["rope_scaling"];
    EXPECT_EQ(again.size(), rope.size()) << again;
    for (const auto& [key, value] : rope.items()) EXPECT_EQ(again.value(key, Json()), value) << key;
  }
  // Relative to the factor that yarn applies anyway.
  const double relative = 1.25 / (1 + 0.1 * std::log(4.0));
  EXPECT_NEAR(GgufFile(folder_ / "out.gguf").number_or("llama.rope.scaling.attn_factor", 0), relative, 1e-6);
}

TEST_F(GgufExport, MistralIsALlamaWithAWindow) {
  change("config.json", {{"model_type", "mistral"}, {"sliding_window", 48}});
  const auto report = exported(model_, folder_ / "out.gguf");
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("answers differ beyond 48 tokens")));
  import_gguf({.gguf = folder_ / "out.gguf", .output = folder_ / "again"});
  EXPECT_EQ(read_json(folder_ / "again/config.json")["sliding_window"], 48);
  EXPECT_EQ(read_json(folder_ / "again/config.json")["model_type"], "mistral");
}

TEST_F(GgufExport, TemplatesAndEndsOfAnswersAreInTheFile) {
  std::ofstream(model_ / "chat_template.jinja") << "the file wins";
  std::filesystem::create_directory(model_ / "additional_chat_templates");
  std::ofstream(model_ / "additional_chat_templates/tool_use.jinja") << "with tools";
  write_json(model_ / "generation_config.json", {{"eos_token_id", {2, 0}}});
  exported(model_, folder_ / "out.gguf");
  const GgufFile file(folder_ / "out.gguf");
  EXPECT_EQ(file.text("tokenizer.chat_template"), "the file wins");
  EXPECT_EQ(file.text("tokenizer.chat_template.tool_use"), "with tools");
  EXPECT_EQ(file.array("tokenizer.chat_templates"), (Json::array_t{"tool_use"}));
  EXPECT_EQ(file.integer("tokenizer.ggml.eos_token_id"), 2);
  EXPECT_EQ(file.integer("tokenizer.ggml.eot_token_id"), 0);
}

TEST_F(GgufExport, FilesDecideWhetherTheHeadIsTheEmbedding) {
  const std::string embedding = "model.embed_tokens.weight", head = "lm_head.weight";
  std::filesystem::copy_file(model_ / "model.safetensors", folder_ / "all.safetensors");
  const SafetensorsReader all(folder_ / "all.safetensors");
  const ConstTensor table = all.at(embedding);
  std::vector<std::byte> rows(table.data, table.data + table.bytes());
  std::rotate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2), rows.end());
  const std::pair<std::string, ConstTensor> own{head, {rows.data(), table.dtype, table.shape, {}}};
  const auto bytes_with = [&](const Json& tied, NamedTensors heads) {
    change("config.json", {{"tie_word_embeddings", tied}});
    for (const auto& [name, tensor] : all.tensors())
      if (name != head && name != embedding) heads.emplace_back(name, tensor);
    write_safetensors(model_ / "model.safetensors", heads);
    exported(model_, folder_ / "out.gguf");
    return read_text(folder_ / "out.gguf");
  };
  const std::string untied = bytes_with(false, {{embedding, table}, own}),
                    tied = bytes_with(true, {{embedding, table}});
  EXPECT_FALSE(untied == tied);
  EXPECT_TRUE(bytes_with(true, {{embedding, table}, own}) == untied) << "a separate head";
  EXPECT_TRUE(bytes_with(true, {{embedding, table}, {head, table}}) == tied) << "the embedding twice";
  EXPECT_TRUE(bytes_with(true, {{head, table}}) == tied) << "the head is used for both";
}

// A single number counts as a list of one; null defers to config.json. Tokens that do not fit are reported.
TEST_F(GgufExport, EveryEndOfAnswersIsInTheFileOrNamed) {
  struct Case {
    Json generation;
    std::optional<std::int64_t> turn, message;
    std::vector<std::string> named;
    Json again;  ///< the end tokens after importing the file
  };
  const auto tokenizer = load_tokenizer(model_);
  const Case cases[] = {
      {{{"eos_token_id", 2}}, {}, {}, {}, 2},
      {{{"eos_token_id", 5}}, 5, {}, {}, {2, 5}},
      {{{"eos_token_id", {5}}}, 5, {}, {}, {2, 5}},
      {{{"eos_token_id", {5, 2, 5}}}, 5, {}, {}, {2, 5}},
      {{{"eos_token_id", {2, 0, 7}}}, 0, 7, {}, {2, 0, 7}},
      {{{"eos_token_id", {9, 8, 2}}}, 9, 8, {}, {2, 9, 8}},
      {{{"eos_token_id", {2, 0, 7, 9, 11}}}, 0, 7, {tokenizer->token(9), tokenizer->token(11)}, {2, 0, 7}},
      {{{"eos_token_id", nullptr}}, 3, {}, {}, {2, 3}},
      {{{"temperature", 1}}, 3, {}, {}, {2, 3}}};
  change("config.json", {{"eos_token_id", 3}});
  for (const Case& c : cases) {
    SCOPED_TRACE(c.generation.dump());
    write_json(model_ / "generation_config.json", c.generation);
    const auto report = exported(model_, folder_ / "out.gguf");
    const GgufFile file(folder_ / "out.gguf");
    EXPECT_EQ(file.integer("tokenizer.ggml.eos_token_id"), 2);
    for (const auto& [key, id] :
         {std::pair("tokenizer.ggml.eot_token_id", c.turn), {"tokenizer.ggml.eom_token_id", c.message}}) {
      EXPECT_EQ(file.find(key) != nullptr, id.has_value()) << key;
      EXPECT_TRUE(!id || file.integer(key) == *id) << key;
    }
    import_gguf({.gguf = folder_ / "out.gguf", .output = folder_ / "again"});
    EXPECT_EQ(read_json(folder_ / "again/generation_config.json")["eos_token_id"], c.again);
    ASSERT_EQ(report.notes.size(), c.named.empty() ? 0u : 1u);
    for (const std::string& token : c.named) EXPECT_THAT(report.notes.front(), HasSubstr(token));
  }
}

// llama.cpp recognizes the ends of turns and of tool calls by the texts of their tokens.
TEST_F(GgufExport, EndsOfTurnsAndOfCallsHaveTheirKeys) {
  Json tokenizer = read_json(model_ / "tokenizer.json");
  const auto rename = [&](int id, const std::string& text) {
    for (Json& added : tokenizer["added_tokens"])
      if (added["id"] == id) {
        tokenizer["model"]["vocab"].erase(added["content"].get<std::string>());
        tokenizer["model"]["vocab"][text] = id;
        added["content"] = text;
      }
  };
  rename(0, "<|eom_id|>");
  rename(1, "<|eot_id|>");
  write_json(model_ / "tokenizer.json", tokenizer);
  std::filesystem::remove(model_ / "special_tokens_map.json");
  change("tokenizer_config.json", {{"unk_token", "<|eom_id|>"}, {"bos_token", "<|eot_id|>"}});
  write_json(model_ / "generation_config.json", {{"eos_token_id", {0, 9, 2, 1}}});
  const auto report = exported(model_, folder_ / "out.gguf");
  const GgufFile file(folder_ / "out.gguf");
  EXPECT_EQ(file.integer("tokenizer.ggml.eom_token_id"), 0);
  EXPECT_EQ(file.integer("tokenizer.ggml.eot_token_id"), 1);
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr(load_tokenizer(model_)->token(9))));
}

TEST_F(GgufExport, RowsWithoutATokenGetAName) {
  const auto vocab = read_json(model_ / "config.json")["vocab_size"].get<std::int64_t>();
  Json tokenizer = read_json(model_ / "tokenizer.json");
  tokenizer["model"]["vocab"].erase("\u0120LIMIT");  // the last one
  write_json(model_ / "tokenizer.json", tokenizer);
  exported(model_, folder_ / "out.gguf");
  const GgufFile file(folder_ / "out.gguf");
  ASSERT_EQ(file.array("tokenizer.ggml.tokens").size(), static_cast<std::size_t>(vocab));
  EXPECT_EQ(file.array("tokenizer.ggml.tokens").back(), "[PAD" + std::to_string(vocab - 1) + "]");
  EXPECT_EQ(file.array("tokenizer.ggml.token_type").back(), 5);
}

TEST_F(GgufExport, RefusesWhatTheFormatCannotSay) {
  struct Case {
    const char* file;
    Json changes;
    std::string cause;
  };
  const Json metaspace{{"type", "Metaspace"}, {"replacement", "_"}};
  for (const auto& [file, changes, cause] :
       {Case{"config.json", {{"quantization_config", {{"quant_method", "gptq"}}}}, "gptq"},
        Case{"config.json", {{"mlp_bias", true}}, "\"mlp_bias\""},
        Case{"config.json", {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}, "rope_type: dynamic"},
        Case{"config.json", {{"intermediate_size", 48}}, "has shape [64, 32], but config.json requires [48, 32]"},
        Case{"config.json", {{"num_hidden_layers", 2}}, "model.layers.1."},
        Case{"config.json", {{"vocab_size", 300}}, "the tokenizer has 320 tokens, but the model only 300 embeddings"},
        Case{"tokenizer.json", {{"pre_tokenizer", metaspace}}, "its pre-tokenizer is"},
        Case{"tokenizer.json", {{"normalizer", {{"type", "Lowercase"}}}}, "its normalizer is"},
        Case{"tokenizer.json", {{"model", {{"ignore_merges", true}}}}, "with ignore_merges"}}) {
    const auto before = read_text(model_ / file);
    change(file, changes);
    const auto error = export_error();
    EXPECT_EQ(error.kind(), ErrorKind::input) << cause;
    EXPECT_THAT(error.what(), HasSubstr(cause));
    std::ofstream(model_ / file) << before;
  }
}

TEST_F(GgufExport, RefusesValuesOutOfRange) {
  widen(64);
  auto bytes = read_text(model_ / "model.safetensors");
  const float huge = 70000;
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::memcpy(bytes.data() + 8 + header, &huge, 4);  // of the first tensor by name, which is the embedding
  std::ofstream(model_ / "model.safetensors", std::ios::binary) << bytes;
  EXPECT_THAT(export_error(GgufType::f16).what(), HasSubstr("70000 in tensor model.embed_tokens.weight"));
  EXPECT_EQ(error_of([] { gguf_export_type("q3_k"); }).kind(), ErrorKind::usage);
}

}  // namespace
}  // namespace qtrain::testing
