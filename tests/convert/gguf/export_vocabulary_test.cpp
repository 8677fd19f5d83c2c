#include <gmock/gmock.h>

#include <fstream>

#include "convert/gguf/export_vocabulary.h"
#include "core/formats/gguf.h"
#include "tests/core/temp_folder.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/sentencepiece.h"

namespace qtrain {
namespace {

using qtrain::testing::error_of;
using qtrain::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kModelGoldens = QTRAIN_SOURCE_DIR "/tests/convert/goldens/gguf";
const std::filesystem::path kTokenizers = QTRAIN_SOURCE_DIR "/tests/text/goldens/tokenizer";

class ExportedVocabulary : public ::testing::Test {
 protected:
  /// Uses the tokenizer.json of a golden in tests/data.
  void use_json(const std::string& golden) {
    write("tokenizer.json", dump_json(read_json(kTokenizers / (golden + ".json"))["files"]["tokenizer.json"]));
  }
  void change(const Json& changes) {
    Json json = read_json(folder_ / "tokenizer.json");
    json.merge_patch(changes);
    write("tokenizer.json", dump_json(json));
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  GgufVocabulary vocabulary(std::int64_t more_rows = 0) {
    const auto tokenizer = load_tokenizer(folder_.path());
    return gguf_vocabulary({folder_.path(), *tokenizer, tokenizer->size() + more_rows});
  }
  std::string refusal() {
    const auto error = error_of([&] { vocabulary(); });
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }

  TempFolder folder_;
};

TEST_F(ExportedVocabulary, OfASentencepieceModelIsWhatTheReferenceWrites) {
  write("tokenizer.model", read_text(kModelGoldens / "spm.model"));
  const auto v = vocabulary(2);
  const GgufFile reference(kModelGoldens / "spm.gguf");
  EXPECT_EQ(v.model, reference.text("tokenizer.ggml.model"));
  EXPECT_EQ(v.pre, reference.text("tokenizer.ggml.pre"));
  EXPECT_EQ(v.add_space_prefix, true);
  const auto count = reference.array("tokenizer.ggml.tokens").size();
  ASSERT_EQ(v.tokens.size(), count + 2);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(v.tokens[i], reference.array("tokenizer.ggml.tokens")[i].get<std::string>());
    EXPECT_EQ(v.types[i], reference.array("tokenizer.ggml.token_type")[i].get<std::int32_t>()) << v.tokens[i];
    EXPECT_EQ(v.scores[i], reference.array("tokenizer.ggml.scores")[i].get<float>()) << v.tokens[i];
  }
  EXPECT_EQ(v.tokens.back(), "[PAD" + std::to_string(count + 1) + "]");
  EXPECT_EQ(v.types.back(), 5);
  write("tokenizer_config.json", R"({"add_prefix_space": false})");
  EXPECT_EQ(vocabulary().add_space_prefix, false);
}

TEST_F(ExportedVocabulary, AddedTokensOfASentencepieceModelAreTheUsers) {
  write("tokenizer.model", read_text(kModelGoldens / "spm.model"));
  const auto first = std::to_string(vocabulary().tokens.size());
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"1": {"content": "<s>", "special": true}, ")" + first +
                                     R"(": {"content": "<tool>", "special": false}}})");
  const auto v = vocabulary();
  EXPECT_EQ(v.tokens.back(), "<tool>");
  EXPECT_EQ(v.types.back(), 4);
  EXPECT_EQ(v.types[1], 3);
  EXPECT_EQ(v.types[0], 2);
}

TEST_F(ExportedVocabulary, DamagedSentencepieceModelsAreRefused) {
  const auto good = read_text(kModelGoldens / "spm.model");
  for (const auto& bytes : {good.substr(0, 100), std::string(),
                            std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), std::string("\x0a\x7f")}) {
    write("tokenizer.model", bytes);
    EXPECT_EQ(error_of([&] { read_sentencepiece_model(folder_ / "tokenizer.model"); }).kind(), ErrorKind::input);
  }
}

TEST_F(ExportedVocabulary, OfTokenizerFilesNamesTheirRules) {
  for (const auto& [golden, pre] : {std::pair{"case_byte_level", "gpt-2"},
                                    {"case_digits_single", "smollm"},
                                    {"case_llama3_style", "llama-bpe"},
                                    {"case_qwen_style", "qwen2"},
                                    {"case_o200k_style", "gpt-4o"},
                                    {"case_old_merges", "gpt-2"}}) {
    use_json(golden);
    const auto v = vocabulary();
    EXPECT_EQ(v.model, "gpt2") << golden;
    EXPECT_EQ(v.pre, pre) << golden;
    EXPECT_THAT(v.notes, ElementsAre()) << golden;
    EXPECT_EQ(v.merges.size(), read_json(folder_ / "tokenizer.json")["model"]["merges"].size());
  }
}

TEST_F(ExportedVocabulary, SaysWhatIsLost) {
  use_json("case_digits_single");
  const Json normalizer{{"type", "NFC"}};
  change({{"normalizer", normalizer}});
  EXPECT_THAT(vocabulary().pre, "command-r");
  use_json("case_o200k_style");
  const std::size_t next = read_json(folder_ / "tokenizer.json")["model"]["vocab"].size();
  const Json token{{"id", next}, {"content", "x<y>"}, {"special", true}, {"rstrip", true}};
  change({{"normalizer", normalizer}, {"added_tokens", Json::array({token})}});
  EXPECT_THAT(vocabulary().notes,
              ElementsAre(HasSubstr("single_word setting of \"x<y>\""), HasSubstr("normalized (NFC)")));
}

TEST_F(ExportedVocabulary, RefusesByName) {
  for (const auto& [golden, cause] : {std::pair{"case_unigram", "its model is Unigram"},
                                      {"case_normalizers", "its normalizer is"},
                                      {"case_byte_level_prefix_space", "its pre-tokenizer is"},
                                      {"case_split_contiguous", "its pre-tokenizer is"},
                                      {"case_byte_fallback_gaps", "Metaspace"},
                                      {"case_llama_style", "into two tokens is a merge"}}) {
    use_json(golden);
    EXPECT_THAT(refusal(), HasSubstr(cause)) << golden;
  }
}

}  // namespace
}  // namespace qtrain
