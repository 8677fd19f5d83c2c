#include "convert/gguf/import.h"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "core/formats/gguf.h"
#include "core/formats/gguf_write.h"
#include "core/formats/json.h"
#include "core/formats/safetensors.h"
#include "core/sha256.h"
#include "tests/core/temp_folder.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {
namespace {

using qtrain::testing::error_of;
using qtrain::testing::TempFolder;
using ::testing::HasSubstr;

const std::filesystem::path kImportGoldens = QTRAIN_SOURCE_DIR "/tests/convert/goldens/gguf";

std::filesystem::path golden(const std::string& name) {
  return kImportGoldens / (name + ".gguf");
}

class GgufImport : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { import_gguf({.gguf = golden(GetParam()), .output = folder_.path()}); }
  Json expected() const { return read_json(kImportGoldens / "expected.json")[GetParam()]; }

  TempFolder folder_;
};

TEST_P(GgufImport, WeightsAreTheReferencesBits) {
  const SafetensorsReader imported(folder_.path());
  Json found = Json::object();
  for (const auto& [name, tensor] : imported.tensors()) {
    const auto& shape = tensor.shape;
    const std::vector<std::int64_t> extents(shape.dims.begin(), shape.dims.begin() + shape.rank);
    const std::string_view bytes(reinterpret_cast<const char*>(tensor.data), tensor.bytes());
    found[name] = {name_of(tensor.dtype), extents, sha256_of(bytes)};
  }
  EXPECT_EQ(found, read_json(kImportGoldens / (GetParam() + ".tensors.json")));
}

TEST_P(GgufImport, ConfigurationsSayWhatTheModelIs) {
  const auto reference = expected();
  for (const auto* file : {"config", "generation_config", "tokenizer_config"}) {
    const auto imported = read_json(folder_ / (std::string(file) + ".json"));
    for (const auto& [key, value] : reference[file].items())
      EXPECT_EQ(dump_json(imported.value(key, Json("missing"))), dump_json(value)) << file << "." << key;
  }
}

TEST_P(GgufImport, TheTokenizerGivesTheIdsOfTheOriginal) {
  const auto tokenizer = load_tokenizer(folder_.path());
  const auto reference = expected();
  ASSERT_GE(reference["ids"].size(), 12u);
  for (const auto& row : reference["ids"]) {
    const auto text = row[0].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text), row[1].get<std::vector<std::int32_t>>()) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufImport,
                         ::testing::Values("smollm", "qwen3", "qwen2", "spm", "gemma2", "qwen3moe", "smollm3", "olmo2",
                                           "granite", "gemma3", "mixtral", "qwen2moe", "olmo3", "exaone4", "hunyuan",
                                           "olmoe"),
                         [](const auto& info) { return info.param; });

TEST(GgufImportDtype, IsTheCallersChoice) {
  TempFolder folder;
  import_gguf({.gguf = golden("qwen2"), .output = folder / "f32", .dtype = DType::f32});
  const SafetensorsReader wide(folder / "f32"), reference(kImportGoldens / "qwen2.safetensors");
  for (const auto& [name, tensor] : reference.tensors())
    for (std::int64_t i = 0; i < tensor.numel(); ++i)
      ASSERT_EQ(wide.at(name).as<float>()[i], static_cast<float>(tensor.as<Bf16>()[i])) << name;
  EXPECT_EQ(read_json(folder / "f32/config.json")["torch_dtype"], "float32");
  const auto error = error_of([&] { import_gguf({golden("qwen2"), folder / "i8", DType::i8}); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_FALSE(std::filesystem::exists(folder / "i8"));
}

/// The golden with the first occurrence of `from` replaced by text of the same length.
std::filesystem::path patched(const TempFolder& folder, const std::string& name, std::string_view from,
                              std::string_view to) {
  auto bytes = read_text(golden(name));
  const auto at = bytes.find(from);
  check(at != std::string::npos && from.size() == to.size(), "nothing to patch");
  bytes.replace(at, to.size(), to);
  std::ofstream(folder / "patched.gguf", std::ios::binary) << bytes;
  return folder / "patched.gguf";
}

struct Patch {
  const char *name, *from, *to, *cause;
};

class GgufImportRefusal : public ::testing::TestWithParam<Patch> {};

TEST_P(GgufImportRefusal, SaysWhyAndWritesNothing) {
  const auto& [name, from, to, cause] = GetParam();
  TempFolder folder;
  const auto file = patched(folder, name, from, to);
  const auto error = error_of([&] { import_gguf({.gguf = file, .output = folder / "out"}); });
  EXPECT_EQ(error.kind(), ErrorKind::input);
  EXPECT_THAT(error.what(), HasSubstr(cause));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufImportRefusal,
    ::testing::Values(Patch{"smollm", "llama", "gemma", "architecture \"gemma\" is not supported"},
                      Patch{"smollm", "smollm", "other!", "pre-tokenizer \"other!\""},
                      Patch{"smollm", "smollm", "kimi-2", "known names are gpt-2, phi-2"},
                      Patch{"smollm", "gpt2", "bert", "tokenizer model \"bert\""},
                      Patch{"smollm", "blk.0.ffn_up.weight", "blk.0.ffn_xp.weight",
                            "no tensor \"blk.0.ffn_up.weight\""},
                      Patch{"spm", "rope_freqs.weight", "rope_frexs.weight", "\"rope_frexs.weight\" does not belong"},
                      Patch{"smollm", "llama.embedding_length", "llama.embedding_lengtx", "llama.embedding_length"},
                      Patch{"smollm", "tokenizer.ggml.merges", "tokenizer.ggml.merged", "tokenizer.ggml.merges"},
                      Patch{"spm", "tokenizer.ggml.scores", "tokenizer.ggml.scorex", "tokenizer.ggml.scores"}));

/// The golden with the first value of an f32 tensor replaced.
std::filesystem::path with_value(const TempFolder& folder, const std::string& tensor, float value) {
  const GgufFile file(golden("spm"));
  const auto data = file.tensor(tensor).data.first(16);
  const std::string from(reinterpret_cast<const char*>(data.data()), data.size());
  std::string to = from;
  std::memcpy(to.data(), &value, sizeof value);
  return patched(folder, "spm", from, to);
}

struct ScoredPiece {
  std::string text;
  float score;
};

/// A vocabulary of the sentencepiece kind.
std::filesystem::path with_pieces(const TempFolder& folder, const std::vector<ScoredPiece>& pieces) {
  std::vector<std::string> tokens{"<unk>"};
  std::vector<float> scores{0};
  for (const ScoredPiece& p : pieces) {
    tokens.push_back(p.text);
    scores.push_back(p.score);
  }
  GgufMetadata metadata;
  metadata.put_text("tokenizer.ggml.model", "llama");
  metadata.put_texts("tokenizer.ggml.tokens", tokens);
  metadata.put_numbers("tokenizer.ggml.scores", scores);
  write_gguf({folder / "pieces.gguf"}, metadata, {});
  return folder / "pieces.gguf";
}

TEST(GgufImportRefusals, PiecesThatCannotBeOrderedOrAreEndless) {
  TempFolder folder;
  const auto import = [&](const ScoredPiece& piece) {
    import_gguf({.gguf = with_pieces(folder, {{"a", -1}, {"b", -2}, piece}), .output = folder / "out"});
  };
  EXPECT_NO_THROW(import({"ab", -3}));
  EXPECT_NO_THROW(import({std::string(1024, 'a'), -3}));
  for (const float score : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
    EXPECT_THAT(error_of([&] { import({"ab", score}); }).what(), HasSubstr("the score of token 3 is not a number"));
  EXPECT_THAT(error_of([&] { import({std::string(1025, 'a'), -3}); }).what(), HasSubstr("token 3 has 1025 bytes"));
}

TEST(GgufImportRefusals, UnknownRopeFactors) {
  TempFolder folder;
  const auto file = with_value(folder, "rope_freqs.weight", 2);
  EXPECT_THAT(error_of([&] { import_gguf({.gguf = file, .output = folder / "out"}); }).what(),
              HasSubstr("rope_freqs.weight is not a llama3 rope scaling"));
}

TEST(GgufImportRefusals, ValuesOutOfRangeOfTheDtype) {
  TempFolder folder;
  const auto file = with_value(folder, "blk.0.ffn_down.weight", 65520);
  EXPECT_THAT(error_of([&] {
                import_gguf({file, folder / "f16", DType::f16});
              }).what(),
              HasSubstr("65520 of tensor model.layers.0.mlp.down_proj.weight is out of range for float16"));
  EXPECT_FALSE(std::filesystem::exists(folder / "f16/config.json"));
  EXPECT_NO_THROW(import_gguf({file, folder / "bf16", DType::bf16}));
}

/// The golden with the four bytes of a u32 or f32 value replaced.
template <class T>
std::filesystem::path with_metadata(const TempFolder& folder, const std::string& key, T value) {
  static_assert(sizeof(T) == 4);
  const auto bytes = read_text(golden("smollm"));
  const auto from = bytes.substr(bytes.find(key), key.size() + 8);  // key, value type, value
  auto to = from;
  std::memcpy(to.data() + key.size() + 4, &value, 4);
  return patched(folder, "smollm", from, to);
}

TEST(GgufImportRefusals, NumbersThatMakeNoModel) {
  TempFolder folder;
  const auto import_error = [&](const std::filesystem::path& file) {
    return std::string(error_of([&] { import_gguf({.gguf = file, .output = folder / "out"}); }).what());
  };
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_THAT(import_error(with_metadata(folder, "llama.rope.freq_base", bad)),
                HasSubstr("must be a positive number"));
  for (const auto* key : {"llama.attention.head_count", "llama.block_count", "llama.embedding_length"})
    for (const std::uint32_t bad : {0u, 0xffffffffu})
      EXPECT_THAT(import_error(with_metadata(folder, key, bad)), HasSubstr("not a plausible size"));
  EXPECT_THAT(import_error(with_metadata(folder, "llama.attention.head_count_kv", 3u)), HasSubstr("cannot share"));
  EXPECT_THAT(import_error(with_metadata(folder, "llama.rope.dimension_count", 4u)), HasSubstr("rotary"));
  EXPECT_THAT(import_error(with_metadata(folder, "tokenizer.ggml.eos_token_id", 320u)), HasSubstr("320 tokens"));
}

// Type 5 means unused: the token that is named as BOS, and would be added to every text, does not exist.
TEST(GgufImportSpecials, TokensThatAreNotInUseAreNotNamed) {
  TempFolder folder;
  auto bytes = read_text(golden("spm"));
  const std::string key = "tokenizer.ggml.token_type";
  const std::int32_t unused = 5;
  std::memcpy(bytes.data() + bytes.find(key) + key.size() + 16 + 4, &unused, 4);  // type, type, count, [0], [1]
  std::ofstream(folder / "patched.gguf", std::ios::binary) << bytes;
  import_gguf({.gguf = folder / "patched.gguf", .output = folder / "out"});
  EXPECT_FALSE(read_json(folder / "out/special_tokens_map.json").contains("bos_token"));
  EXPECT_EQ(read_json(folder / "out/special_tokens_map.json")["eos_token"], "</s>");
  const auto ids = load_tokenizer(folder / "out")->encode("a");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 0);
}

TEST(GgufImportRefusals, MoreLayersThanTensors) {
  TempFolder folder;
  const auto file = with_metadata(folder, "llama.block_count", 1000000u);
  EXPECT_THAT(error_of([&] { import_gguf({.gguf = file, .output = folder / "out"}); }).what(),
              HasSubstr("1000000 layers, but the file only"));
}

/// A golden with another u32 value before its other metadata.
std::filesystem::path with_key(const TempFolder& folder, const std::string& name, const std::string& key,
                               std::uint32_t value) {
  auto bytes = read_text(golden(name));
  const auto number = [](auto n) { return std::string(reinterpret_cast<const char*>(&n), sizeof n); };
  const auto text = [&](const std::string& t) { return number(std::uint64_t{t.size()}) + t; };
  std::string added = text(key) + number(std::uint32_t{4}) + number(value);
  const std::string filler = text("filler") + number(std::uint32_t{8});
  const std::size_t open = (added.size() + filler.size() + 8) % kGgufAlignment;
  added += filler + text(std::string(kGgufAlignment - open, '-'));  // tensors stay aligned
  std::uint64_t count = 0;
  std::memcpy(&count, bytes.data() + 16, sizeof count);
  count += 2;
  std::memcpy(bytes.data() + 16, &count, sizeof count);
  bytes.insert(24, added);
  std::ofstream(folder / "patched.gguf", std::ios::binary) << bytes;
  return folder / "patched.gguf";
}

TEST(GgufImportFamilies, WindowsThatTheFamilyDoesNotHaveAreRefused) {
  TempFolder folder;
  const auto import_error = [&](const std::string& key, std::uint32_t value) {
    const auto file = with_key(folder, "gemma2", key, value);
    return std::string(error_of([&] { import_gguf({.gguf = file, .output = folder / "out"}); }).what());
  };
  const std::string pattern = "gemma2.attention.sliding_window_pattern", base = "gemma2.rope.freq_base_swa";
  EXPECT_THAT(import_error(pattern, 3), HasSubstr(pattern + " differs from that of the supported gemma2 models"));
  EXPECT_THAT(import_error(base, 5000), HasSubstr(base));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  EXPECT_NO_THROW(import_gguf({.gguf = with_key(folder, "gemma2", pattern, 2), .output = folder / "same"}));
  EXPECT_NO_THROW(import_gguf({.gguf = with_key(folder, "gemma2", base, 10000), .output = folder / "base"}));
}

TEST(GgufImportFamilies, TheWindowOfGemma2IsLlamaCppsWhereTheFileHasNone) {
  TempFolder folder;
  const auto file = patched(folder, "gemma2", "gemma2.attention.sliding_window", "gemma2.attention.sliding_windox");
  import_gguf({.gguf = file, .output = folder / "out"});
  const Json config = read_json(folder / "out/config.json");
  EXPECT_EQ(config["sliding_window"], 4096);
  EXPECT_EQ(config["layer_types"][0], "sliding_attention");
}

TEST(GgufImportFamilies, NumbersOfExpertsMustBeThere) {
  for (const std::string key : {"expert_count", "expert_used_count", "expert_feed_forward_length"}) {
    TempFolder folder;
    auto other = key;
    other.back() = 'x';
    const auto file = patched(folder, "qwen3moe", "qwen3moe." + key, "qwen3moe." + other);
    EXPECT_THAT(error_of([&] { import_gguf({.gguf = file, .output = folder / "out"}); }).what(),
                HasSubstr("qwen3moe." + key));
  }
}

TEST(GgufImportFamilies, ManyExpertsOfFewTensorsAreNotNamed) {
  TempFolder folder;
  const auto bytes = read_text(golden("qwen3moe"));
  const std::string key = "qwen3moe.block_count";
  auto from = bytes.substr(bytes.find(key), key.size() + 8), to = from;
  to[key.size() + 4] = 20;
  EXPECT_THAT(
      error_of([&] { import_gguf({.gguf = patched(folder, "qwen3moe", from, to), .output = folder / "out"}); }).what(),
      HasSubstr("20 layers of 12 tensors, but the file only"));
}

TEST(GgufImportRefusals, MissingFileAndFolderInTheWay) {
  TempFolder folder;
  EXPECT_THAT(error_of([&] { import_gguf({.gguf = folder / "none.gguf", .output = folder / "out"}); }).what(),
              HasSubstr("no such file"));
  std::ofstream(folder / "out") << "a file";
  const auto error = error_of([&] { import_gguf({.gguf = golden("qwen2"), .output = folder / "out"}); });
  EXPECT_EQ(error.kind(), ErrorKind::disk);
}

}  // namespace
}  // namespace qtrain
