// Tokenizers whose rules multiply a text, or whose files name two tokens with the same id.
#include <gmock/gmock.h>

#include "core/os/file.h"
#include "tests/data/support.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string quoted(const std::string& text) {
  return Json(text).dump();
}

/// A Sequence of `times` equal steps.
std::string sequence(const char* list, const std::string& step, int times) {
  std::string steps;
  for (int i = 0; i < times; ++i) steps += (i ? ", " : "") + step;
  return R"({"type": "Sequence", ")" + std::string(list) + "\": [" + steps + "]}";
}

std::string replacing(const std::string& pattern, const std::string& content) {
  return R"({"type": "Replace", "pattern": )" + pattern + R"(, "content": )" + quoted(content) + "}";
}

class HostileTokenizers : public test::DataFolder {
 protected:
  std::unique_ptr<Tokenizer> load(const Json& tokenizer) {
    write("tokenizer.json", tokenizer.dump());
    return load_tokenizer(folder_);
  }
  static Json small() {
    return Json::parse(R"({"model": {"type": "BPE", "unk_token": "u", "vocab": {"u": 0, "a": 1, "b": 2, "ab": 3},
                           "merges": ["a b"]}})");
  }
  std::string refusal(const Json& tokenizer) {
    return test::error_of(ErrorKind::input, [&] { load(tokenizer); });
  }
};

TEST_F(HostileTokenizers, RulesThatMultiplyTextEndWithAnError) {
  const std::string doubling = replacing(R"({"String": "a"})", "aa"), byte_level = R"({"type": "ByteLevel"})";
  struct Case {
    const char *part, *name;
    std::string rules, text;
  };
  const Case cases[] = {
      {"normalizer", "doubling", sequence("normalizers", doubling, 40), "a"},
      {"normalizer", "long content", replacing(R"({"String": "a"})", std::string(1 << 20, 'b')), "aaaa"},
      {"normalizer", "empty matches", replacing(R"({"Regex": "b*"})", std::string(4096, 'a')), std::string(1000, 'a')},
      {"normalizer", "prefixes",
       sequence("normalizers", R"({"type": "Prepend", "prepend": )" + quoted(std::string(1 << 16, 'a')) + "}", 40),
       "b"},
      {"normalizer", "bytes as characters", sequence("normalizers", byte_level, 40), "\xC3\xA9"},
      {"pre_tokenizer", "bytes as characters", sequence("pretokenizers", byte_level, 40), "\xC3\xA9"},
      {"pre_tokenizer", "spaces",
       R"({"type": "Metaspace", "prepend_scheme": "always", "replacement": )" + quoted(std::string(1 << 16, 'b')) + "}",
       std::string(100, ' ')}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Json json = small();
    json[c.part] = Json::parse(c.rules);
    const auto tokenizer = load(json);
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { tokenizer->encode(c.text); }),
                AllOf(HasSubstr("to a text of " + std::to_string(c.text.size())), HasSubstr("tokenizer.json")));
  }
}

TEST_F(HostileTokenizers, RulesThatMultiplyAddedTokensEndWithAnError) {
  Json json = small();
  json["normalizer"] = Json::parse(sequence("normalizers", replacing(R"({"String": "x"})", "xx"), 40));
  json["added_tokens"] = Json::parse(R"([{"id": 4, "content": "x", "normalized": true}])");
  EXPECT_THAT(refusal(json), HasSubstr("rules of the tokenizer add more than"));
}

TEST_F(HostileTokenizers, DecodersThatMultiplyTextAreRefused) {
  const std::string doubling = replacing(R"({"String": "a"})", "aa");
  for (const std::string& rules :
       {sequence("decoders", doubling, 40), replacing(R"({"Regex": ""})", std::string(999, 'a')),
        sequence("decoders", sequence("decoders", doubling, 4), 4)}) {
    Json json = small();
    json["decoder"] = Json::parse(rules);
    EXPECT_THAT(refusal(json), HasSubstr("lengthen a text"));
  }
}

TEST_F(HostileTokenizers, RulesThatModelsHaveAreNotHeldBack) {
  Json json = small();
  json["normalizer"] = Json::parse(R"({"type": "Sequence", "normalizers": [
      {"type": "NFKD"}, {"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})");
  json["decoder"] = Json::parse(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  const auto tokenizer = load(json);
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "\xEF\xB7\xBA ";  // U+FDFA, the largest decomposition
  EXPECT_GT(tokenizer->encode(text).size(), 1'000'000u);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("abab")), "uabab");
}

TEST_F(HostileTokenizers, TwoTokensOfOneIdAreRefused) {
  struct Case {
    const char *name, *file, *contents;
  };
  const Case cases[] = {
      {"vocabulary", "tokenizer.json",
       R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 1}, "merges": []}})"},
      {"added tokens", "tokenizer.json",
       R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
           "added_tokens": [{"id": 1, "content": "<s>"}, {"id": 1, "content": "</s>"}]})"},
      {"an added token and one of the vocabulary", "tokenizer.json",
       R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
           "added_tokens": [{"id": 1, "content": "<s>"}]})"},
      {"the next free id and one behind a gap", "tokenizer.json",
       R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 2}, "merges": []}, "added_tokens": [{"content": "<s>"}]})"},
      {"added_tokens_decoder", "tokenizer_config.json",
       R"({"added_tokens_decoder": {"7": {"content": "<s>"}, "07": {"content": "</s>"}}})"},
      {"added_tokens.json", "added_tokens.json", R"({"<s>": 7, "</s>": 7})"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    write("tokenizer.json", small().dump());
    std::filesystem::remove(folder_ / "tokenizer_config.json");
    write(c.file, c.contents);
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { load_tokenizer(folder_); }),
                AllOf(HasSubstr("share the id"), HasSubstr(c.file)));
  }
}

TEST_F(HostileTokenizers, OneTokenMayBeNamedTwice) {
  Json json = small();
  json["added_tokens"] = Json::parse(
      R"([{"id": 1, "content": "a", "special": true}, {"id": 4, "content": "<s>"}, {"id": 4, "content": "<s>"}])");
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer->id_of("a"), 1);
  EXPECT_EQ(tokenizer->id_of("<s>"), 4);
}

TEST_F(HostileTokenizers, ASentencepieceModelHasOneTokenAnId) {
  const auto model = std::filesystem::path(QTRAIN_SOURCE_DIR) / "tests/convert/goldens/gguf/spm.model";
  std::filesystem::copy_file(model, folder_ / "tokenizer.model");
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"5": {"content": "<new>"}}})");
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { load_tokenizer(folder_); }), HasSubstr("share the id 5"));
}

}  // namespace
}  // namespace qtrain
