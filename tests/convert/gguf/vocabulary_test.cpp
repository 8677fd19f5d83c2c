#include <gmock/gmock.h>

#include "convert/gguf/import.h"
#include "convert/gguf/pre_tokenizers.h"
#include "core/formats/json.h"
#include "tests/core/temp_folder.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {
namespace {

using qtrain::testing::TempFolder;
using ::testing::ElementsAre;

const std::filesystem::path kVocabularies = QTRAIN_SOURCE_DIR "/tests/convert/goldens/gguf_vocab";

class GgufVocabularies : public ::testing::TestWithParam<std::string> {};

TEST_P(GgufVocabularies, GiveTheIdsOfLlamaCpp) {
  TempFolder folder;
  const auto parts = import_gguf({.gguf = kVocabularies / (GetParam() + ".gguf"), .output = folder.path()});
  EXPECT_EQ(parts, ImportedParts::tokenizer);
  EXPECT_FALSE(std::filesystem::exists(folder / "config.json"));
  const auto tokenizer = load_tokenizer(folder.path());
  const Json expected = read_json(kVocabularies / "expected.json");
  const Json &texts = expected["texts"], &ids = expected["ids"][GetParam()];
  ASSERT_GE(texts.size(), 40u);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    if (!ids[i].is_null()) {
      EXPECT_EQ(tokenizer->encode(text, {.add_special = false}), ids[i].get<std::vector<std::int32_t>>()) << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufVocabularies,
                         ::testing::Values("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2",
                                           "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact",
                                           "starcoder"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(GgufVocabularies, PhiTokensTakeTheBlanksBehindThem) {
  TempFolder folder;
  import_gguf({.gguf = kVocabularies / "phi-3.gguf", .output = folder.path()});
  const Json added = read_json(folder / "tokenizer.json")["added_tokens"];
  ASSERT_GE(added.size(), 3u);
  for (const Json& token : added)
    EXPECT_EQ(token["rstrip"],
              token["content"] != "<s>" && token["content"] != "<unk>" && token["content"] != "<|endoftext|>")
        << token["content"];
}

std::vector<std::string> pieces_of(std::string_view name, const std::string& text) {
  const auto cut = make_pre_tokenizer(pre_tokenizer_json(*gguf_pre_tokenizer(name)), Alphabet::bytes);
  PreTokens tokens{.text = {.text = text}, .pieces = {{0, text.size()}}};
  cut->apply(tokens);
  std::vector<std::string> pieces;
  for (const Piece& p : tokens.pieces) pieces.push_back(tokens.text.text.substr(p.begin, p.end - p.begin));
  return pieces;
}

// Cases that the vocabularies' test strings do not distinguish, or that have no vocabulary.
TEST(GgufPreTokenizers, CutTextsAsTheirExpressionsSay) {
  EXPECT_THAT(pieces_of("deepseek-llm", "abc\u05d0\u05d1 12\n\u4e00x"),
              ElementsAre("abc", "\u05d0\u05d1 ", "12", "\n", "\u4e00", "x"));
  EXPECT_THAT(pieces_of("deepseek-coder", "abc\u05d0\u05d1 12"), ElementsAre("abc\u05d0\u05d1", " ", "1", "2"));
  EXPECT_THAT(pieces_of("deepseek-v3", "x1234 e\u0301!?\n\u3042\u4e00don't"),
              ElementsAre("x", "123", "4", " e\u0301", "!?\n", "\u3042\u4e00", "don", "'t"));
  EXPECT_THAT(pieces_of("gpt-4o", "HelloWorld'S 1234"), ElementsAre("Hello", "World'S", " ", "123", "4"));
  EXPECT_THAT(pieces_of("tekken", "HelloWorld's 12"), ElementsAre("Hello", "World", "'s", " ", "1", "2"));
  EXPECT_THAT(pieces_of("llama-bpe", "I'LL e\u0301 1234"), ElementsAre("I", "'LL", " e", "\u0301", " ", "123", "4"));
  EXPECT_THAT(pieces_of("qwen35", "I'LL e\u0301 12"), ElementsAre("I", "'LL", " e\u0301", " ", "1", "2"));
  EXPECT_THAT(pieces_of("default", "a+-b12345"), ElementsAre("a", "+-", "b", "123", "45"));
}

// Exported rules are found again, under their own name or an earlier one with the same rules.
TEST(GgufPreTokenizers, AreFoundByTheirRules) {
  for (const std::string name :
       {"gpt-2", "olmo", "smollm", "command-r", "llama-bpe", "dbrx", "qwen2", "stablelm2", "qwen35", "tekken", "gpt-4o",
        "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon", "default"}) {
    const auto* pre = gguf_pre_tokenizer(name);
    ASSERT_NE(pre, nullptr) << name;
    const auto* found = gguf_pre_tokenizer_of(
        {.pre_tokenizer = pre_tokenizer_json(*pre), .ignore_merges = pre->ignore_merges, .nfc = pre->nfc});
    EXPECT_EQ(found, pre) << name;
  }
  EXPECT_NE(gguf_pre_tokenizer("hunyuan-dense"), nullptr);  // the rules of deepseek-v3
  EXPECT_EQ(gguf_pre_tokenizer("gemma4"), nullptr);
}

TEST(GgufPreTokenizers, OtherRulesHaveNoName) {
  const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  EXPECT_EQ(gguf_pre_tokenizer_of({.pre_tokenizer = bytes})->name, "gpt-2");
  EXPECT_EQ(gguf_pre_tokenizer_of({.pre_tokenizer = bytes, .ignore_merges = true}), nullptr);
  Json prefixed = bytes;
  prefixed["add_prefix_space"] = true;
  EXPECT_EQ(gguf_pre_tokenizer_of({.pre_tokenizer = prefixed}), nullptr);
  const auto split = [&](const char* behavior, bool invert) -> Json {
    const std::string_view llama3 = gguf_pre_tokenizer("llama3")->splits[0];
    return {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"}, {"pattern", {{"Regex", llama3}}}, {"behavior", behavior}, {"invert", invert}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  };
  EXPECT_EQ(gguf_pre_tokenizer_of({.pre_tokenizer = split("Removed", true)})->name, "dbrx");
  EXPECT_EQ(gguf_pre_tokenizer_of({.pre_tokenizer = split("MergedWithNext", false)}), nullptr);
  EXPECT_EQ(gguf_pre_tokenizer_of({.pre_tokenizer = nullptr}), nullptr);
}

}  // namespace
}  // namespace qtrain
