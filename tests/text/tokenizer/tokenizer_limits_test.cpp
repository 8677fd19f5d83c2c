// What a tokenizer takes grows with the sizes of its files and of a text, not with products of them.
#include <gmock/gmock.h>

#include <ctime>

#include "tests/data/support.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

constexpr int kMany = 150'000;

Json golden_tokenizer() {
  const auto folder = std::filesystem::path(QTRAIN_SOURCE_DIR) / "tests/text/goldens/tokenizer";
  return read_json(folder / "case_byte_level.json")["files"]["tokenizer.json"];
}

Json tokenizer_with(const char* part, const Json& value) {
  Json json = golden_tokenizer();
  json[part] = value;
  return json;
}

Json unigram_with(const std::string& token) {
  Json json = tokenizer_with(
      "model",
      {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", Json::array({{"<unk>", 0.0}, {"a", -1.0}, {token, -2.0}})}});
  for (const char* part : {"pre_tokenizer", "normalizer", "post_processor", "decoder"}) json[part] = nullptr;
  json["added_tokens"] = Json::array();
  return json;
}

/// Text of a JSON object with as many members, made of a name and a value for each number.
std::string members(const std::string& name, const std::string& value) {
  std::string text = "{";
  for (int i = 0; i < kMany; ++i) {
    const std::string number = std::to_string(i);
    text += (i > 0 ? ",\"" : "\"") + name + number + "\":" + (value.empty() ? "0" : "\"" + value + number + "\"");
  }
  return text + "}";
}

class TokenizerLimits : public test::DataFolder {};

TEST_F(TokenizerLimits, ManyNamesTakeLittleTime) {
  std::string list = "[";
  for (int i = 0; i < kMany; ++i) list += (i > 0 ? ",\"<" : "\"<") + std::to_string(i) + ">\"";
  list += "]";
  const struct {
    const char *name, *file;
    std::string text;
  } cases[] = {
      {"keys", "tokenizer_config.json", members("key", "")},
      {"keys of another file", "special_tokens_map.json", members("key", "")},
      {"more special tokens", "tokenizer_config.json", "{\"additional_special_tokens\":" + list + "}"},
      {"named special tokens", "tokenizer_config.json", "{\"extra_special_tokens\":" + members("t", "<t") + "}"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) write(file, "{}");
    write(c.file, c.text);
    const std::clock_t begin = std::clock();
    EXPECT_NO_THROW(read_tokenizer_settings(folder_));
    EXPECT_LT(std::clock() - begin, 8 * CLOCKS_PER_SEC);
  }
}

TEST_F(TokenizerLimits, OfRulesAreRefused) {
  const auto nested = [](const char* list, const Json& step, std::size_t steps) {
    const Json half{{"type", "Sequence"}, {list, Json::array_t(steps / 2, step)}};
    const Json rest{{"type", "Sequence"}, {list, Json::array_t(steps - steps / 2, step)}};
    return Json{{"type", "Sequence"}, {list, Json::array({half, rest})}};
  };
  const auto framed = [](std::size_t items, std::size_t ids) {
    const Json item{{"SpecialToken", {{"id", "x"}, {"type_id", 0}}}};
    return Json{{"type", "TemplateProcessing"},
                {"single", Json::array_t(items, item)},
                {"special_tokens", {{"x", {{"ids", Json::array_t(ids, Json(1))}}}}}};
  };
  const Json strip{{"type", "Strip"}, {"content", "a"}},
      bert{{"type", "BertProcessing"}, {"cls", {"a", 1}}, {"sep", {"a", 1}}};
  const struct {
    const char* name;
    Json json;
    const char* refusal;  ///< null: accepted
  } cases[] = {
      {"normalizers", tokenizer_with("normalizer", nested("normalizers", {{"type", "NFC"}}, 129)), "129 steps"},
      {"as many normalizers as can be", tokenizer_with("normalizer", nested("normalizers", {{"type", "NFC"}}, 128)),
       nullptr},
      {"pre-tokenizers", tokenizer_with("pre_tokenizer", nested("pretokenizers", {{"type", "Whitespace"}}, 129)),
       "129 steps"},
      {"decoders", tokenizer_with("decoder", nested("decoders", strip, 129)), "129 steps"},
      {"post-processors", tokenizer_with("post_processor", nested("processors", bert, 129)), "129 steps"},
      {"tokens around a text", tokenizer_with("post_processor", framed(512, 3)), "more than 1024 tokens"},
      {"items without tokens", tokenizer_with("post_processor", framed(1025, 0)), "more than 1024 tokens"},
      {"tokens of one item", tokenizer_with("post_processor", framed(1, 1025)), "more than 1024 tokens"},
      {"as many tokens as can be", tokenizer_with("post_processor", framed(512, 2)), nullptr},
      {"tokens of several steps",
       tokenizer_with("post_processor",
                      {{"type", "Sequence"}, {"processors", Json::array({framed(1, 600), framed(1, 600)})}}),
       "more than 1024 tokens"},
      {"a token of Unigram", unigram_with(std::string(kMaxUnigramToken + 1, 'a')), "has 1025 bytes"},
      {"as long a token as can be", unigram_with(std::string(kMaxUnigramToken, 'a')), nullptr}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    write("tokenizer.json", c.json.dump());
    if (c.refusal == nullptr)
      EXPECT_GT(load_tokenizer(folder_)->encode("a b").size(), 0u);
    else
      EXPECT_THAT(test::error_of(ErrorKind::input, [&] { load_tokenizer(folder_); }), HasSubstr(c.refusal));
  }
}

TEST_F(TokenizerLimits, OfSentencepieceArePieces) {
  const auto model_with = [](std::size_t bytes) {  // of less than 2^14 bytes
    const auto length = [](std::size_t n) {
      return std::string{static_cast<char>(n | 0x80), static_cast<char>(n >> 7)};
    };
    const std::string piece = "\x0a" + length(bytes) + std::string(bytes, 'a');
    return "\x0a" + length(piece.size()) + piece;
  };
  const std::string fits = write("fits.model", model_with(kMaxUnigramToken)),
                    too_long = write("long.model", model_with(kMaxUnigramToken + 1));
  EXPECT_EQ(read_sentencepiece_model(fits).pieces.at(0).text.size(), kMaxUnigramToken);
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read_sentencepiece_model(too_long); }),
              HasSubstr("has 1025 bytes"));
}

TEST_F(TokenizerLimits, LongPatternsTakeLinearTime) {
  const Json replace{
      {"type", "Replace"}, {"pattern", {{"String", std::string(1'500'000, 'a') + "b"}}}, {"content", "c"}};
  write("tokenizer.json", tokenizer_with("normalizer", replace).dump());
  const auto tokenizer = load_tokenizer(folder_);
  const std::clock_t begin = std::clock();
  EXPECT_GT(tokenizer->encode(std::string(3'000'000, 'a')).size(), 0u);
  EXPECT_LT(std::clock() - begin, 10 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace qtrain
