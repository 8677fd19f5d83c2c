// Replaces each value of each JSON file that a run reads by a value of every other type, one at a time: the file is
// read, or refused by an error that names it.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "app/answers.h"
#include "config/config.h"
#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "model/lora.h"
#include "model/model_config.h"
#include "quant/bnb.h"
#include "quant/fp8.h"
#include "tests/core/temp_folder.h"
#include "text/template/load.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/tokenizer.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_state.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokenizer = R"({
  "version": "1.0",
  "added_tokens": [{"id": 5, "content": "<s>", "special": true, "normalized": false, "single_word": false,
                    "lstrip": false, "rstrip": false}],
  "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "a"}, {"type": "Replace", "pattern": {"String": " "}, "content": "a"},
    {"type": "Replace", "pattern": {"Regex": "b+"}, "content": "b"}, {"type": "Strip", "strip_left": true}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": " ?a"}, "behavior": "Isolated", "invert": false},
    {"type": "Digits", "individual_digits": true}, {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true},
    {"type": "CharDelimiterSplit", "delimiter": "-"}, {"type": "FixedLength", "length": 5},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
  "post_processor": {"type": "Sequence", "processors": [
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
     "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}},
    {"type": "RobertaProcessing", "sep": ["<s>", 5], "cls": ["<s>", 5]}]},
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}, {"type": "Metaspace", "replacement": "_"}]},
  "model": {"type": "BPE", "unk_token": "a", "byte_fallback": false, "fuse_unk": false, "dropout": null,
            "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b", ["a", "b"]]}
})";
constexpr std::string_view kUnigram =
    R"({"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": [["a", -1.5], ["b", 0]]}})";
constexpr std::string_view kTokenizerConfig = R"({
  "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false, "special": true}, "add_bos_token": true,
  "chat_template": [{"name": "default", "template": "{{ messages }}"}],
  "additional_special_tokens": ["<x>", {"content": "<y>"}], "extra_special_tokens": {"image_token": "<i>"},
  "added_tokens_decoder": {"6": {"content": "</s>", "normalized": false, "special": true}}})";
constexpr std::string_view kSpecialTokens =
    R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "rstrip": false}, "additional_special_tokens": ["<x>"]})";
constexpr std::string_view kGeneration = R"({"eos_token_id": [1, 2], "do_sample": true, "temperature": 0.6, "top_k": 20,
  "top_p": 0.95, "min_p": 0, "repetition_penalty": 1.0})";

/// A JSON file: its name, its valid contents, and what reads it in a folder.
struct JsonFile {
  std::string name, good;
  std::function<void(const fs::path& folder)> read;
  ErrorKind blame = ErrorKind::input;
  std::string beside = {};  ///< a tokenizer.json that the file requires
};

std::string repository_file(const std::string& path) {
  return read_text(fs::path(QTRAIN_SOURCE_DIR) / path);
}

void read_tokenizer(const fs::path& folder) {
  const auto tokenizer = load_tokenizer(folder);
  chat_template_sources(folder);
  special_tokens(folder);
  try {
    tokenizer->decode(tokenizer->encode("a b-ab5 <s>"));
  } catch (const Error& e) {  // an error about the text, which a tokenizer without an unknown token refuses
    if (e.kind() != ErrorKind::input) throw;
  }
}

void write_safetensors(const fs::path& file, const std::string& header) {
  const std::uint64_t size = header.size();
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof size) << header << std::string(16, '\0');
}

std::vector<JsonFile> json_files() {
  const std::string tokenizer(kTokenizer);
  const std::string quantized = "tests/quant/goldens/bnb_model_fp4/config.json";
  return {
      {"tokenizer.json", tokenizer, read_tokenizer},
      {"tokenizer.json", std::string(kUnigram), read_tokenizer},
      {"tokenizer_config.json", std::string(kTokenizerConfig), read_tokenizer, ErrorKind::input, tokenizer},
      {"special_tokens_map.json", std::string(kSpecialTokens), read_tokenizer, ErrorKind::input, tokenizer},
      {"added_tokens.json", R"({"<s>": 4, "<x>": 9})", read_tokenizer, ErrorKind::input, tokenizer},
      {"adapter_config.json", repository_file("tests/golden/data/lora_qwen3_patterns/adapter/adapter_config.json"),
       [](const fs::path& folder) { load_lora_config(folder); }},
      {"config.json", repository_file("tests/golden/data/rope_llama3/config.json"),
       [](const fs::path& folder) { load_model_config(folder / "config.json"); }},
      {"config.json", repository_file(quantized),
       [](const fs::path& folder) {
         const fs::path file = folder / "config.json";
         bnb_config(read_json(file), file.string());
       }},
      {"config.json", repository_file("tests/quant/goldens/fp8_row/config.json"),
       [](const fs::path& folder) {
         const fs::path file = folder / "config.json";
         fp8_config(read_json(file), file.string());
       }},
      {"generation_config.json", std::string(kGeneration),
       [](const fs::path& folder) { load_generation_defaults(folder / "generation_config.json"); }},
      {"qtrain_state.json", dump_json(RunState{.best_metric = 1.5}.to_json()),
       [](const fs::path& folder) {
         const fs::path file = folder / "qtrain_state.json";
         RunState::from_json(read_json(file), file.string());
       }},
      {"manifest.json", R"({"format_version": 1, "step": 2, "world_size": 1, "sha256": "0", "files":
        {"config.json": {"size": 2, "sha256": "00"}}})",
       [](const fs::path& folder) { check_manifest(folder, ManifestCheck::hashes); }},
      {"model.safetensors.index.json", R"({"metadata": {"total_size": 16}, "weight_map": {"a": "x.safetensors"}})",
       [](const fs::path& folder) {
         write_safetensors(folder / "x.safetensors", R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})");
         SafetensorsReader reader(folder / "model.safetensors.index.json");
       }},
      {"model.safetensors",
       R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})",
       [](const fs::path& folder) {
         const fs::path file = folder / "model.safetensors";
         write_safetensors(file, read_text(file));
         SafetensorsReader reader(file);
       }},
      {"run.json", repository_file("examples/cypher/config.json"),
       [](const fs::path& folder) {
         const fs::path file = folder / "run.json";
         resolved_json(parse_config(read_text(file), file.string()));
       },
       ErrorKind::usage},
  };
}

/// Values of every type, including some that no file contains.
const std::vector<std::string> kOthers = {"null",
                                          "true",
                                          "-1",
                                          "0.5",
                                          "1e300",
                                          "18446744073709551615",
                                          "\"x\"",
                                          "\"\"",
                                          "[]",
                                          "{}",
                                          "[[[{\"a\": [5]}]]]",
                                          "{\"content\": 5, \"type\": []}"};

/// The JSON pointers to all values of a document; for long lists, only to the first entries.
std::vector<Json::json_pointer> places(const Json& json) {
  std::vector<Json::json_pointer> all{Json::json_pointer()};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Json::json_pointer here = all[i];
    const Json& value = json[here];
    for (std::size_t k = 0; value.is_array() && k < std::min<std::size_t>(value.size(), 3); ++k)
      all.push_back(here / k);
    if (value.is_object())
      for (const auto& [key, member] : value.get_ref<const Json::object_t&>()) all.push_back(here / key);
  }
  return all;
}

class WrongTypes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(WrongTypes, AreReadOrRefusedByAnErrorThatNamesTheFile) {
  const JsonFile file = json_files()[GetParam()];
  const testing::TempFolder folder;
  if (!file.beside.empty()) std::ofstream(folder / "tokenizer.json") << file.beside;
  const Json good = parse_json(file.good, file.name, {.comments = true});
  int refused = 0;
  for (const auto& place : places(good))
    for (const std::string& other : kOthers) {
      Json bad = good;
      bad[place] = Json::parse(other);
      std::ofstream(folder / file.name, std::ios::trunc) << dump_json(bad);
      SCOPED_TRACE("\"" + place.to_string() + "\" is " + other);
      try {
        file.read(folder.path());
      } catch (const Error& e) {
        const std::string said = e.what();
        ++refused;
        EXPECT_EQ(e.kind(), file.blame) << said;
        EXPECT_NE(said.find(file.name), std::string::npos) << said;
        EXPECT_EQ(said.find("json.exception"), std::string::npos) << said;
      } catch (const std::exception& e) {
        ADD_FAILURE() << "another exception: " << e.what();
      }
    }
  EXPECT_GT(refused, 5);
}

INSTANTIATE_TEST_SUITE_P(All, WrongTypes, ::testing::Range(std::size_t{0}, json_files().size()), [](const auto& info) {
  std::string name = json_files()[info.param].name + "_" + std::to_string(info.param);
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

}  // namespace
}  // namespace qtrain
