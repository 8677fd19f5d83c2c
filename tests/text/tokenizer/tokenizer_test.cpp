// How tokenizers handle damaged, hostile or large files and texts.
#include "text/tokenizer/tokenizer.h"

#include <gmock/gmock.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "core/os/stop.h"
#include "tests/core/colliding_keys.h"
#include "tests/data/support.h"
#include "text/tokenizer/load.h"

namespace qtrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

Json golden_tokenizer(const std::string& name) {
  const auto folder = std::filesystem::path(QTRAIN_SOURCE_DIR) / "tests/text/goldens/tokenizer";
  return read_json(folder / ("case_" + name + ".json"))["files"]["tokenizer.json"];
}

class TokenizerFiles : public test::DataFolder {
 protected:
  std::unique_ptr<Tokenizer> load(const Json& tokenizer) {
    write("tokenizer.json", tokenizer.dump());
    return load_tokenizer(folder_);
  }
  std::unique_ptr<Tokenizer> load(const char* part, const std::string& value) {
    Json json = bytes_;
    json[part] = Json::parse(value);
    return load(json);
  }
  std::string refusal(const Json& tokenizer) {
    return test::error_of(ErrorKind::input, [&] { load(tokenizer); });
  }
  std::string refusal(const char* part, const std::string& value) {
    return test::error_of(ErrorKind::input, [&] { load(part, value); });
  }
  std::string refusal_of_regex(const std::string& pattern) {
    const Json step = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    return refusal("pre_tokenizer", step.dump());
  }
  Json bytes_ = golden_tokenizer("byte_level");
};

TEST_F(TokenizerFiles, AFolderWithoutTokenizerIsNamed) {
  const std::string text = test::error_of(ErrorKind::input, [&] { load_tokenizer(folder_); });
  EXPECT_THAT(text, HasSubstr(folder_.string()));
  EXPECT_THAT(text, HasSubstr("tokenizer.model"));
}

TEST_F(TokenizerFiles, UnknownComponentsAreRefusedByName) {
  EXPECT_THAT(refusal("normalizer", R"({"type":"Precompiled","precompiled_charsmap":""})"), HasSubstr("Precompiled"));
  EXPECT_THAT(refusal("normalizer", R"({"type":"Sequence","normalizers":[{"type":"BertNormalizer"}]})"),
              HasSubstr("BertNormalizer"));
  EXPECT_THAT(refusal("pre_tokenizer", R"({"type":"Clauses"})"), HasSubstr("Clauses"));
  EXPECT_THAT(refusal("pre_tokenizer", R"({"type":"CharDelimiterSplit","delimiter":"ab"})"),
              HasSubstr("one character"));
  EXPECT_THAT(refusal("pre_tokenizer", R"({"type":"FixedLength","length":0})"), HasSubstr("pre_tokenizer.length"));
  EXPECT_THAT(refusal("pre_tokenizer", R"({"type":"Split","pattern":{"String":"a"},"behavior":"Odd"})"),
              HasSubstr("Odd"));
  EXPECT_THAT(refusal("post_processor", R"({"type":"PairProcessing"})"), HasSubstr("PairProcessing"));
  EXPECT_THAT(refusal("decoder", R"({"type":"WordPiece"})"), HasSubstr("WordPiece"));
  EXPECT_THAT(refusal("decoder", R"({"type":"Strip","content":"","start":2147483647,"stop":0})"),
              HasSubstr("decoder.content: must not be empty"));
  EXPECT_THAT(refusal("model", R"({"type":"WordLevel","vocab":{}})"), HasSubstr("WordLevel"));
  EXPECT_THAT(refusal("model", R"({"type":"WordLevel","vocab":{}})"), HasSubstr("tokenizer.json"));
}

// Searching for each token at each position took a thousand times as long.
TEST_F(TokenizerFiles, ATextTakesNoLongerWhereThereAreManyAddedTokens) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "<|extra_?" + std::to_string(i);
  const auto time_with = [&](int tokens) {
    Json json = bytes_;
    for (int i = 0; i < tokens; ++i)
      json["added_tokens"].push_back({{"content", "<|extra_" + std::to_string(i) + "|>"}, {"special", true}});
    const auto tokenizer = load(json);
    EXPECT_EQ(tokenizer->encode("<|extra_7|>").size(), 1u);
    return hostile::cpu_seconds([&] { tokenizer->encode(text); });
  };
  const double few = time_with(100), many = time_with(50'000);
  EXPECT_LT(many, 20 * few + 0.02);
}

TEST_F(TokenizerFiles, OfAddedTokensWithOneBeginningTheLongestIsFound) {
  Json json = bytes_;
  for (const char* content : {"<a", "<ab>", "<", "<abc", "<ab", "<ab>"})
    json["added_tokens"].push_back({{"content", content}, {"special", true}});
  const auto tokenizer = load(json);
  const auto tokens = [&](const char* text) {
    std::string found;
    for (const auto id : tokenizer->encode(text)) found += tokenizer->token(id) + " ";
    return found;
  };
  EXPECT_EQ(tokens("<ab><abc<abd<<a"), "<ab> <abc <ab d < <a ");
}

TEST_F(TokenizerFiles, ModelOptionsThatChangeIdsAreRefused) {
  for (const auto& [key, value] : {std::pair<const char*, Json>{"dropout", 0.1},
                                   {"continuing_subword_prefix", "##"},
                                   {"end_of_word_suffix", "</w>"},
                                   {"unk_token", "<absent>"}}) {
    Json json = bytes_;
    json["model"][key] = value;
    EXPECT_NE(refusal(json), "") << key;
  }
}

TEST_F(TokenizerFiles, DamagedModelsAreRefused) {
  Json json = bytes_;
  json["model"]["merges"].push_back({"Ġthe", "absent"});
  EXPECT_THAT(refusal(json), HasSubstr("Ġthe absent"));
  json = bytes_;
  json["model"]["merges"].push_back("nospace");
  EXPECT_THAT(refusal(json), HasSubstr("nospace"));
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{1} << 40, std::int64_t{1} << 22}) {
    json = bytes_;
    json["model"]["vocab"]["odd"] = id;
    EXPECT_THAT(refusal(json), HasSubstr("id")) << id;
  }
  json = bytes_;
  json["model"]["vocab"] = Json::object();
  EXPECT_THAT(refusal(json), HasSubstr("empty"));
  for (const char* key : {"vocab", "merges"}) {
    json = bytes_;
    json["model"][key] = 7;
    EXPECT_THAT(refusal(json), HasSubstr("tokenizer.json")) << key;
  }
  json.erase("model");
  EXPECT_THAT(refusal(json), HasSubstr("model"));
  EXPECT_NE(refusal("added_tokens", R"([{"id":1}])"), "");
  EXPECT_NE(refusal("pre_tokenizer", R"("ByteLevel")"), "");
}

TEST_F(TokenizerFiles, AHugeTokenizerIsRefusedUnread) {
  write("tokenizer.json", "{}");
  std::filesystem::resize_file(at("tokenizer.json"), (std::uintmax_t{256} << 20) + 1);
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { load_tokenizer(folder_); }), HasSubstr("tokenizer.json"));
}

TEST_F(TokenizerFiles, GarbageForASentencepieceModelIsRefused) {
  write("tokenizer.model", "this is not a model");
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { load_tokenizer(folder_); }), HasSubstr("tokenizer.model"));
}

TEST_F(TokenizerFiles, ExpressionsWithAnotherMeaningInPcre2AreRefused) {
  EXPECT_THAT(refusal_of_regex("[a-z&&[^b]]"), HasSubstr("intersection"));
  EXPECT_THAT(refusal_of_regex("[[:alpha:]]"), HasSubstr("nested"));
  EXPECT_THAT(refusal_of_regex(R"(\p{Klingon})"), HasSubstr("Klingon"));
  EXPECT_THAT(refusal_of_regex(R"(a{1,3}+)"), HasSubstr("+ after"));
  EXPECT_THAT(refusal_of_regex("(?m:.)"), HasSubstr("(?m"));
  EXPECT_THAT(refusal_of_regex("(*COMMIT)a"), HasSubstr("(*"));
  EXPECT_THAT(refusal_of_regex(R"(\Ka)"), HasSubstr("\\K"));
  EXPECT_THAT(refusal_of_regex("(?<=a{300})b"), HasSubstr("looks back over more than 255 characters"));
  EXPECT_THAT(refusal_of_regex("(unclosed"), HasSubstr("not valid"));
}

TEST_F(TokenizerFiles, AnExpressionThatRunsAwayIsStopped) {
  const auto tokenizer =
      load("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"(?:a|aa|a(?=a))+[bc]"},"behavior":"Isolated"})");
  const std::string text(2000, 'a');
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { tokenizer->encode(text); }), HasSubstr("steps on 2000 bytes"));
}

// The time that a text takes grows with its size, whatever a small tokenizer.json says.
TEST_F(TokenizerFiles, NoRulesMakeATextTakeVeryLong) {
  const auto with = [&](const char* part, const char* value) {
    Json json = bytes_;
    json[part] = Json::parse(value);
    return json;
  };
  const auto split_by = [&](const std::string& pattern) {
    return with("pre_tokenizer",
                Json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}}.dump().c_str());
  };
  const auto with_token = [&](const std::string& content, const char* flag) {
    Json json = bytes_;
    json["added_tokens"].push_back({{"content", content}, {flag, true}});
    return json;
  };
  Json beginnings = bytes_;
  for (int i = 0; i < 4; ++i)
    beginnings["added_tokens"].push_back(
        {{"content", std::string(100'000, 'a') + std::to_string(i)}, {"special", true}});
  const struct {
    const char* name;
    Json json;
    std::string text;
    bool refused = false;
  } cases[] = {
      {"steps of many matches", split_by("(?:(?:a|a){18}b)|a"), std::string(50'000, 'a'), true},
      {"a repetition of one character at each", split_by("a+b|a"), std::string(1'000'000, 'a'), true},
      {"a repetition that gives back", split_by("(?:a+)b"), std::string(1'000'000, 'a'), true},
      {"repetitions within", split_by("a*a*b|c"), std::string(20'000, 'a'), true},
      {"a repetition in each alternative", split_by("a*b|a*c|a*d|a"), std::string(1'000'000, 'a'), true},
      {"a repetition behind a lookahead", split_by("(?=a)a*b|a"), std::string(1'000'000, 'a'), true},
      {"a lazy repetition", split_by("a+?[bc]"), std::string(300'000, 'a'), true},
      {"a lookahead", split_by("a(?=a*b)|a"), std::string(1'000'000, 'a'), true},
      {"many optional items", split_by("(?:a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?)b|a"), std::string(10'000, 'a'),
       true},
      {"a number of times", split_by("a{60000}|a"), std::string(59'999, 'a') + std::string(1, 'c'), true},
      {"a lazy number of times", split_by("a{60000}?|a"), std::string(59'999, 'a') + std::string(1, 'c'), true},
      {"a nested number of times", split_by("(?:a{250}){250}|a"), std::string(62'499, 'a'), true},
      {"a long literal", split_by(std::string(20'000, 'a') + "b|a"), std::string(200'000, 'a'), true},
      {"steps of many pieces",
       with("pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"FixedLength","length":25},)"
                             R"({"type":"Split","pattern":{"Regex":"(?:(?:a|a){18}b)|a"},"behavior":"Isolated"}]})"),
       std::string(50'000, 'a'), true},
      {"blanks before a token", with_token(" ", "lstrip"), std::string(300'000, ' ')},
      {"blanks behind a token", with_token(" ", "rstrip"), std::string(300'000, ' ')},
      {"the beginning of a long token", with_token(std::string(100'000, 'a') + "b", "special"),
       std::string(200'000, 'a')},
      {"long tokens with one beginning", beginnings, std::string(1'000'000, 'a')},
      {"a rare match", split_by("b"), std::string(2'000'000, 'a')},
      {"a long repetition", split_by("\\s*[\r\n]+|\\s+(?!\\S)|\\s+|a"), std::string(2'000'000, ' ') + "a"},
      {"long matches", split_by("(?:a|c)+|b"), std::string(200'000, 'a') + "b" + std::string(200'000, 'a')}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const auto tokenizer = load(c.json);
    const std::clock_t begin = std::clock();  // of this process, whatever else runs
    if (c.refused)
      EXPECT_THAT(test::error_of(ErrorKind::input, [&] { tokenizer->encode(c.text); }),
                  AllOf(HasSubstr(" steps on "), HasSubstr("split it into several rows")));
    else
      EXPECT_GT(tokenizer->encode(c.text).size(), 0u);
    EXPECT_LT(std::clock() - begin, 10 * CLOCKS_PER_SEC);
  }
}

TEST_F(TokenizerFiles, LongTokensAreFoundAsShortOnesAre) {
  const std::string a(70, 'a');
  Json json = bytes_;
  for (const std::string& content : {a, a + "b", "b" + a, a + a + "c", std::string("ab"), std::string("aaa")})
    json["added_tokens"].push_back({{"content", content}, {"special", true}});
  const auto tokenizer = load(json);
  const struct {
    std::string text;
    std::vector<std::string> tokens;
  } cases[] = {{a + "b", {a + "b"}},        {a + a + "c", {a + a + "c"}},
               {a + a + "b", {a, a + "b"}}, {"b" + a + "b", {"b" + a, "b"}},
               {"a" + a + "b", {a, "ab"}},  {"aaaa" + a + a + "c", {a, a, "aaa", "a", "c"}},
               {"aaaab", {"aaa", "ab"}}};
  for (const auto& c : cases) {
    std::vector<std::string> tokens;
    for (const std::int32_t id : tokenizer->encode(c.text)) tokens.push_back(tokenizer->token(id));
    EXPECT_EQ(tokens, c.tokens) << c.text;
  }
}

TEST_F(TokenizerFiles, AnExpressionEndsOnARequestToStop) {
  const auto tokenizer = load("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"a+b|a"},"behavior":"Isolated"})");
  const std::string text(1'000'000, 'a');
  set_stop_requested(true);
  const std::string error = test::error_of(ErrorKind::stopped, [&] { tokenizer->encode(text); });
  set_stop_requested(false);
  EXPECT_THAT(error, HasSubstr("stopped by a signal"));
}

TEST_F(TokenizerFiles, TokensThatStripBlanksTakeThoseUpToTheNext) {
  Json json = bytes_;
  for (const auto& [content, flag] : {std::pair("<l>", "lstrip"), {"<r>", "rstrip"}})
    json["added_tokens"].push_back({{"content", content}, {"special", true}, {flag, true}});
  const auto tokenizer = load(json);
  const struct {
    const char* text;
    std::vector<std::pair<std::size_t, std::size_t>> ranges;
  } cases[] = {{"  <l>", {{0, 5}}},
               {"<r>  ", {{0, 5}}},
               {"<r>  <l>", {{0, 5}, {5, 8}}},
               {" <l> <l>", {{0, 4}, {4, 8}}},
               {"<r> <r> ", {{0, 4}, {4, 8}}}};
  for (const auto& c : cases) EXPECT_EQ(tokenizer->encode_with_offsets(c.text, {}).offsets, c.ranges) << c.text;
}

// Models have more rows than their tokenizer has tokens, and may answer with any of them.
TEST_F(TokenizerFiles, IdsOutsideTheVocabularyHaveNoText) {
  const auto tokenizer = load(bytes_);
  const std::int32_t end = tokenizer->size();
  const std::string text = tokenizer->decode(Ids{0, end - 1});
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(tokenizer->decode(Ids{0, -1, end, 1 << 30, end - 1}), text);
}

TEST_F(TokenizerFiles, TruncationAndPaddingAreLeftToTheTrainer) {
  Json json = bytes_;
  json["truncation"] = {{"direction", "Right"}, {"max_length", 2}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json["padding"] = {{"strategy", {{"Fixed", 64}}}, {"direction", "Right"}, {"pad_id", 0}, {"pad_token", "a"}};
  const std::string text = "one two three four five";
  EXPECT_EQ(load(json)->encode(text), load(bytes_)->encode(text));
}

TEST_F(TokenizerFiles, InvalidUtf8CountsAsReplacementCharacters) {
  const auto tokenizer = load(bytes_);
  const std::string broken = "ab\xFF cd\xE2\x82 \xF0\x9F\x98\x80\xC3";
  EXPECT_EQ(tokenizer->encode(broken), tokenizer->encode("ab\uFFFD cd\uFFFD \U0001F600\uFFFD"));
  const auto encoding = tokenizer->encode_with_offsets(broken);
  for (const auto& [begin, end] : encoding.offsets) {
    EXPECT_LT(begin, end);
    EXPECT_LE(end, broken.size());
  }
  EXPECT_EQ(encoding.offsets.back().second, broken.size());
}

// Quadratic merging would take minutes here.
TEST_F(TokenizerFiles, LongWordsTakeLittleTime) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* name : {"byte_level", "llama_style", "unigram", "qwen_style"}) {
    const auto tokenizer = load(golden_tokenizer(name));
    for (const std::string unit : {"a", "the", "=", " ", "é", "e\u0301", "7", "\u0301\u0323"}) {
      std::string word;
      while (word.size() < 200'000) word += unit;
      // The number of tokens is not checked: consecutive characters outside the vocabulary form one.
      const Tokenizer::Encoding encoding = tokenizer->encode_with_offsets(word);
      ASSERT_FALSE(encoding.ids.empty()) << name << " " << unit;
      EXPECT_GE(encoding.offsets.back().second + 2, word.size()) << name << " " << unit;
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST_F(TokenizerFiles, ThreadsShareATokenizer) {
  const auto tokenizer = load(golden_tokenizer("qwen_style"));
  std::vector<std::string> texts(400);
  for (std::size_t i = 0; i < texts.size(); ++i)
    texts[i] = "word" + std::to_string(i % 97) + " naïve thethe " + std::to_string(i);
  std::vector<Ids> expected;
  {
    const auto alone = load(golden_tokenizer("qwen_style"));
    for (const std::string& t : texts) expected.push_back(alone->encode(t));
  }
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < wrong.size(); ++n)
    threads.emplace_back([&, n] {
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const std::size_t at = (i * 7 + n * 100) % texts.size();
        wrong[n] += tokenizer->encode(texts[at]) == expected[at] ? 0 : 1;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

/// Counts how many ids it decodes.
class CountingTokenizer final : public Tokenizer {
 public:
  explicit CountingTokenizer(const Tokenizer& inner) : inner_(inner) {}
  std::vector<std::int32_t> encode(std::string_view t, EncodeOptions o) const override { return inner_.encode(t, o); }
  Encoding encode_with_offsets(std::string_view t, EncodeOptions o) const override {
    return inner_.encode_with_offsets(t, o);
  }
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions o) const override {
    decoded += ids.size();
    return inner_.decode(ids, o);
  }
  std::int32_t size() const override { return inner_.size(); }
  std::optional<std::int32_t> id_of(std::string_view t) const override { return inner_.id_of(t); }
  std::string token(std::int32_t id) const override { return inner_.token(id); }
  bool is_special(std::int32_t id) const override { return inner_.is_special(id); }
  const SpecialTokens& special() const override { return inner_.special(); }
  mutable std::size_t decoded = 0;

 private:
  const Tokenizer& inner_;
};

TEST_F(TokenizerFiles, StreamingWaitsForWholeCharacters) {
  bytes_["model"]["merges"] = Json::array();
  const auto tokenizer = load(bytes_);
  const Ids ids = tokenizer->encode("a\U0001F680b");  // the rocket is four tokens
  ASSERT_EQ(ids.size(), 6u);
  StreamDecoder decoder(*tokenizer, {});
  std::vector<std::string> parts;
  for (const std::int32_t id : ids) parts.push_back(decoder.push(id));
  EXPECT_EQ(parts, (std::vector<std::string>{"a", "", "", "", "\U0001F680", "b"}));
  EXPECT_EQ(decoder.push(ids[1]), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
}

// The concatenated bytes of all tokens are the text, even if tokens are parts of characters.
TEST_F(TokenizerFiles, TokensHaveTheirOwnBytes) {
  bytes_["model"]["merges"] = Json::array();
  const auto tokenizer = load(bytes_);
  const std::string text = "a\U0001F680 \u00e9\uFFFD\n";
  std::vector<std::string> bytes;
  for (const std::int32_t id : tokenizer->encode(text, {.add_special = false}))
    bytes.push_back(token_bytes(*tokenizer, id));
  std::vector<std::string> expected;
  for (const char c : text) expected.emplace_back(1, c);
  EXPECT_EQ(bytes, expected);
}

TEST_F(TokenizerFiles, StreamingNeverHoldsBackForEver) {
  const auto tokenizer = load(bytes_);
  const std::int32_t lead = tokenizer->encode("\U0001F680")[0];
  StreamDecoder decoder(*tokenizer, {});
  std::string text;
  for (int i = 0; i < 100; ++i) text += decoder.push(lead);
  EXPECT_GT(text.size(), 3u * 50);
  text += decoder.finish();
  EXPECT_EQ(text, tokenizer->decode(Ids(100, lead)));
}

TEST_F(TokenizerFiles, StreamingDecodesAFewIdsForEachOne) {
  const auto tokenizer = load(bytes_);
  const CountingTokenizer counting(*tokenizer);
  std::string text;
  for (int i = 0; i < 500; ++i) text += "word " + std::to_string(i) + " ";
  const Ids ids = tokenizer->encode(text);
  StreamDecoder decoder(counting, {});
  std::string streamed;
  for (const std::int32_t id : ids) streamed += decoder.push(id);
  EXPECT_EQ(streamed + decoder.finish(), text);
  EXPECT_LT(counting.decoded, 10 * ids.size());
}

}  // namespace
}  // namespace qtrain
