// Small tokenizers, one for each feature, compared with tokenizers, transformers and sentencepiece
// (tests/text/make_tokenizer_goldens.py).
#include <zlib.h>

#include <fstream>

#include "core/os/file.h"
#include "tests/data/support.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

using Ids = std::vector<std::int32_t>;

std::filesystem::path golden_file(const std::string& name) {
  return std::filesystem::path(QTRAIN_SOURCE_DIR) / "tests/text/goldens/tokenizer" / (name + ".json");
}

std::vector<std::string> golden_names(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_file("texts").parent_path()))
    if (entry.path().stem().string().starts_with(prefix)) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// The library's offsets count characters, and a token that contains a part of a character covers the whole.
std::vector<std::size_t> character_offsets(const Tokenizer::Encoding& encoding, std::string_view text) {
  const auto characters_before = [&](std::size_t byte) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte),
                                                  [](char c) { return (c & 0xC0) != 0x80; }));
  };
  const auto inside = [&](std::size_t byte) { return byte < text.size() && (text[byte] & 0xC0) == 0x80; };
  std::vector<std::size_t> out;
  for (const auto& [begin, end] : encoding.offsets) {
    out.push_back(characters_before(begin) - (inside(begin) ? 1 : 0));
    out.push_back(characters_before(end));
  }
  return out;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder decoder(tokenizer, {});
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string more = decoder.push(id);
    EXPECT_TRUE(is_utf8(more));
    text += more;
  }
  return text + decoder.finish();
}

class GoldenTokenizer : public test::DataFolder, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    test::DataFolder::SetUp();
    golden_ = read_json(golden_file(GetParam()));
    for (const auto& [name, content] : golden_["files"].items()) write(name, content.dump());
    tokenizer_ = load_tokenizer(folder_);
    for (const Json& t : read_json(golden_file("texts"))) texts_.push_back(t);
  }
  Json golden_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::string> texts_;
};

TEST_P(GoldenTokenizer, EncodesAsTheLibrary) {
  ASSERT_EQ(golden_["results"].size(), texts_.size());
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const Json& expected = golden_["results"][i];
    SCOPED_TRACE(texts_[i]);
    EXPECT_EQ(tokenizer_->encode(texts_[i]), expected["ids"].get<Ids>());
    const auto plain = tokenizer_->encode_with_offsets(texts_[i], {.add_special = false});
    EXPECT_EQ(plain.ids, expected.value("plain", expected["ids"].get<Ids>()));
    ASSERT_EQ(plain.ids.size(), plain.offsets.size());
    if (!expected.contains("offsets")) continue;
    EXPECT_EQ(character_offsets(plain, texts_[i]), expected["offsets"].get<std::vector<std::size_t>>());
  }
}

TEST_P(GoldenTokenizer, DecodesAsTheLibrary) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const Json& expected = golden_["results"][i];
    if (!expected.contains("decoded")) continue;
    SCOPED_TRACE(texts_[i]);
    const Ids ids = expected.value("plain", expected["ids"].get<Ids>());
    const std::string text = expected["decoded"];
    EXPECT_EQ(tokenizer_->decode(ids), text);
    EXPECT_EQ(tokenizer_->decode(ids, {.skip_special = true}), expected.value("skipped", text));
    EXPECT_EQ(streamed(*tokenizer_, ids), text);
  }
}

TEST_P(GoldenTokenizer, KnowsItsVocabulary) {
  EXPECT_EQ(tokenizer_->size(), golden_["size"].get<std::int32_t>());
  for (const auto& [token, id] : golden_["files"]["tokenizer.json"]["model"]["vocab"].items())
    if (id.is_number()) {
      EXPECT_EQ(tokenizer_->id_of(token), id.get<std::int32_t>()) << token;
      EXPECT_EQ(tokenizer_->token(id), token);
    }
  if (!golden_.contains("special")) return;
  for (const auto& [name, token] : golden_["special"].items()) {
    EXPECT_EQ(tokenizer_->special().named.at(name), token.get<std::string>());
    EXPECT_EQ(tokenizer_->id_of(token.get<std::string>()), golden_["special_ids"][name].get<std::int32_t>()) << token;
  }
  EXPECT_EQ(tokenizer_->special().bos_id, golden_["special_ids"]["bos_token"].get<std::int32_t>());
  EXPECT_EQ(tokenizer_->special().pad_id, golden_["special_ids"]["pad_token"].get<std::int32_t>());
  Ids special;
  for (std::int32_t id = 0; id < tokenizer_->size(); ++id)
    if (tokenizer_->is_special(id)) special.push_back(id);
  EXPECT_EQ(special, golden_["is_special"].get<Ids>());
}

INSTANTIATE_TEST_SUITE_P(Features, GoldenTokenizer, ::testing::ValuesIn(golden_names("case_")),
                         [](const auto& info) { return info.param.substr(5); });

std::string from_base64(const std::string& text) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, text.find('='))) {
    bits = bits << 6 | static_cast<std::uint32_t>(kAlphabet.find(c));
    count += 6;
    if (count >= 8) out += static_cast<char>(bits >> (count -= 8) & 0xFF);
  }
  return out;
}

class GoldenSentencepiece : public test::DataFolder, public ::testing::WithParamInterface<std::string> {};

TEST_P(GoldenSentencepiece, FollowsTheLibrary) {
  const Json golden = read_json(golden_file(GetParam()));
  write("tokenizer.model", from_base64(golden["model"]));
  const auto tokenizer = load_tokenizer(folder_);
  EXPECT_EQ(tokenizer->size(), golden["size"].get<std::int32_t>());
  const auto bos = golden["bos"].get<std::int32_t>();
  EXPECT_EQ(tokenizer->special().bos_id, bos);
  EXPECT_EQ(tokenizer->special().eos_id, golden["eos"].get<std::int32_t>());
  for (const Json& row : golden["results"]) {
    SCOPED_TRACE(row["text"].dump());
    const auto ids = row["ids"].get<Ids>();
    EXPECT_EQ(tokenizer->encode(row["text"].get<std::string>(), {.add_special = false}), ids);
    Ids with_bos = ids;
    with_bos.insert(with_bos.begin(), bos);
    EXPECT_EQ(tokenizer->encode(row["text"].get<std::string>()), with_bos);
    EXPECT_EQ(tokenizer->decode(ids), row["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer->decode(with_bos, {.skip_special = true}), row["decoded"].get<std::string>());
    EXPECT_EQ(streamed(*tokenizer, ids), row["decoded"].get<std::string>());
  }
}

TEST_P(GoldenSentencepiece, FindsAddedAndSpecialTokensInText) {
  write("tokenizer.model", from_base64(read_json(golden_file(GetParam()))["model"]));
  write("tokenizer_config.json", R"({"bos_token":"<s>","eos_token":"</s>","add_bos_token":false,"add_eos_token":true,)"
                                 R"("additional_special_tokens":["<|im_end|>"]})");
  const auto tokenizer = load_tokenizer(folder_);
  const std::int32_t added = tokenizer->size() - 1;
  EXPECT_EQ(tokenizer->id_of("<|im_end|>"), added);
  const auto ids = tokenizer->encode("the<|im_end|></s>");
  Ids expected = tokenizer->encode("the", {.add_special = false});
  const std::int32_t eos = *tokenizer->special().eos_id;
  expected.insert(expected.end(), {added, eos, eos});
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(tokenizer->decode(ids), "the<|im_end|></s></s>");
  EXPECT_EQ(tokenizer->decode(ids, {.skip_special = true}), "the");
}

class SpecialTokensInText : public test::DataFolder {};

/// Results of transformers 5.24 for texts, by the keys of tokenizer_config.json. The second model keeps all blanks,
/// like those of the Llama family: `normalizer_spec.remove_extra_whitespaces: false` is appended to it, and the last
/// value counts.
TEST_F(SpecialTokensInText, BlanksAroundSpecialTokensOfSentencepieceAreThoseOfTransformers) {
  const Json golden = read_json(golden_file("sentencepiece_bpe"));
  const std::string model = from_base64(golden["model"]);
  struct Case {
    const char* text;
    Ids ids;
    const char* decoded;
    bool kept_blanks = false;  // only in the second model
  };
  const std::vector<Case> bare = {{"the", {269}, "the"},
                                  {"<s>the</s>the", {1, 263, 2, 263}, "<s>the</s>the"},
                                  {"<s> the", {1, 269}, "<s> the"},
                                  {"the</s> the", {269, 2, 269}, "the</s> the"},
                                  {"  the", {302, 269}, " the", true},
                                  {" the</s>  the", {269, 2, 302, 269}, "the</s>  the", true},
                                  {"</s>", {2}, "</s>"}},
                          legacy = {{"<s>the</s>the", {1, 269, 2, 269}, "<s> the</s> the"},
                                    {"<s> the", {1, 269}, "<s> the"},
                                    {" the</s>  the", {269, 2, 302, 269}, "the</s>  the", true}},
                          unprefixed = {{"the", {263}, "the"},
                                        {"<s>the</s>the", {1, 263, 2, 263}, "<s>the</s>the"},
                                        {"<s> the", {1, 269}, "<s> the"},
                                        {" the", {269}, " the"},
                                        {"the</s> the", {263, 2, 269}, "the</s> the"},
                                        {"  the", {302, 269}, "  the", true}},
                          split = {{"<s>the</s>the", {302, 63, 309, 343, 263, 63, 50, 309, 343, 263}, "<s>the</s>the"},
                                   {"<s> the", {302, 63, 309, 343, 269}, "<s> the"},
                                   {"</s>", {302, 63, 50, 309, 343}, "</s>"}};
  const std::pair<const char*, const std::vector<Case>&> configs[] = {
      {"", bare},
      {R"("legacy": null,)", bare},
      {R"("legacy": false,)", bare},
      {R"("legacy": true,)", legacy},
      {R"("add_prefix_space": null,)", bare},
      {R"("add_prefix_space": true,)", bare},
      {R"("add_prefix_space": false,)", unprefixed},
      {R"("add_prefix_space": false, "legacy": true,)", unprefixed},
      {R"("split_special_tokens": true,)", split}};
  for (const bool keeps_blanks : {false, true})
    for (const auto& [keys, cases] : configs) {
      std::string changed = keeps_blanks ? model + std::string("\x1a\x02\x20\x00", 4) : model;
      // The config's setting for the blank overrides the model's (add_dummy_prefix: false).
      if (std::string_view(keys).find("add_prefix_space\": t") != std::string_view::npos)
        changed += std::string("\x1a\x02\x18\x00", 4);
      write("tokenizer.model", changed);
      write("tokenizer_config.json", std::string("{") + keys + R"("bos_token": "<s>", "eos_token": "</s>"})");
      const auto tokenizer = load_tokenizer(folder_);
      for (const Case& c : cases) {
        if (c.kept_blanks && !keeps_blanks) continue;
        const Ids ids = tokenizer->encode(c.text, {.add_special = false});
        EXPECT_EQ(ids, c.ids) << keys << c.text << keeps_blanks;
        EXPECT_EQ(tokenizer->decode(c.ids), c.decoded) << keys << c.text << keeps_blanks;
      }
    }
}

// A user-defined piece of the model also ends a stretch.
TEST_F(SpecialTokensInText, BlanksBehindDefinedPiecesAreThoseOfTransformers) {
  const std::string piece = "\x0a\x0a\x0a\x06<tool>\x18\x04";  // appended: "<tool>", user_defined
  write("tokenizer.model", from_base64(read_json(golden_file("sentencepiece_bpe"))["model"]) + piece);
  for (const bool legacy : {false, true}) {
    write("tokenizer_config.json", legacy ? R"({"legacy": true})" : R"({"legacy": false})");
    const auto tokenizer = load_tokenizer(folder_);
    const std::int32_t the = legacy ? 269 : 263;  // with a blank before it, or without
    EXPECT_EQ(tokenizer->encode("the<tool>the", {.add_special = false}), (Ids{269, 400, the}));
    EXPECT_EQ(tokenizer->encode("the<tool> the", {.add_special = false}), (Ids{269, 400, 269}));
    EXPECT_EQ(tokenizer->encode("<tool>the<tool>", {.add_special = false}), (Ids{400, the, 400}));
    EXPECT_EQ(tokenizer->decode(Ids{400, the, 400}), legacy ? "<tool> the<tool>" : "<tool>the<tool>");
    EXPECT_EQ(tokenizer->decode(Ids{269, 400, 269}, {.skip_special = true}), "the<tool> the");
  }
}

TEST_F(SpecialTokensInText, SpecialTokensAreSplitWhereTheConfigSaysSo) {
  const std::filesystem::path chatml = std::filesystem::path(QTRAIN_SOURCE_DIR) / "tests/data/golden/chatml";
  write("tokenizer.json", read_text(chatml / "tokenizer.json"));
  for (const char* value : {"true", "false", "null"}) {
    write("tokenizer_config.json",
          std::string(R"({"eos_token": "<|im_end|>", "split_special_tokens": )") + value + "}");
    const auto tokenizer = load_tokenizer(folder_);
    EXPECT_EQ(tokenizer->encode("<|im_end|>").size() == 1, value != std::string("true")) << value;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("a<|im_end|>b")), "a<|im_end|>b") << value;
    EXPECT_EQ(tokenizer->special().eos_id, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenSentencepiece, ::testing::ValuesIn(golden_names("sentencepiece_")),
                         [](const auto& info) { return info.param; });

/// Every character twice, after an apostrophe and an `a`.
std::vector<std::string> every_character() {
  std::vector<std::string> texts;
  int in_text = 8192;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    if (in_text++ == 8192) {
      texts.emplace_back();
      in_text = 1;
    }
    std::string& text = texts.back();
    text += "'";
    append_utf8(text, c);
    text += "a";
    append_utf8(text, c);
    text += '\0';
  }
  return texts;
}

std::uint32_t digest(const std::string& text) {
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

// Which characters are letters, digits, spaces or punctuation must not depend on the versions of our Unicode libraries.
TEST(UnicodeClasses, PreTokenizersCutEveryCharacterAsTheLibrary) {
  const std::vector<std::string> texts = every_character();
  const Json golden = read_json(golden_file("every_character"));
  for (const Json& row : golden.at("pre_tokenizers")) {
    const auto step = make_pre_tokenizer(row["step"], Alphabet::bytes);
    std::size_t pieces = 0;
    std::string ends;
    for (const std::string& text : texts) {
      PreTokens tokens{.text = {.text = text}, .pieces = {{0, text.size()}}};
      step->apply(tokens);
      std::size_t byte = 0, character = 0;
      for (const Piece& p : tokens.pieces) {
        for (; byte < p.end; ++byte) character += (text[byte] & 0xC0) != 0x80 ? 1 : 0;
        ends += (pieces++ > 0 ? " " : "") + std::to_string(character);
      }
    }
    EXPECT_EQ(pieces, row["pieces"].get<std::size_t>()) << row["step"];
    EXPECT_EQ(digest(ends), row["digest"].get<std::uint32_t>()) << row["step"];
  }
}

TEST(UnicodeClasses, NormalizersChangeEveryCharacterAsTheLibrary) {
  const std::vector<std::string> texts = every_character();
  const Json golden = read_json(golden_file("every_character"));
  for (const Json& row : golden.at("normalizers")) {
    const auto step = make_normalizer(row["step"]);
    std::string all;
    for (const std::string& text : texts) {
      TrackedText t{.text = text};
      step->apply(t);
      all += t.text;
    }
    EXPECT_EQ(digest(all), row["digest"].get<std::uint32_t>()) << row["step"];
  }
}

TEST(RandomTexts, NormalizersGiveWhatTheLibraryGives) {
  const Json golden = read_json(golden_file("random_steps"));
  for (const Json& row : golden.at("normalizers")) {
    const auto step = make_normalizer(row["step"]);
    for (const Json& pair : row["rows"]) {
      TrackedText text{.text = pair[0]};
      step->apply(text);
      EXPECT_EQ(text.text, pair[1].get<std::string>()) << row["step"] << " of " << pair[0].dump(-1, ' ', true);
    }
  }
}

TEST(RandomTexts, PreTokenizersCutWhereTheLibraryCuts) {
  const Json golden = read_json(golden_file("random_steps"));
  for (const Json& row : golden.at("pre_tokenizers")) {
    const auto step = make_pre_tokenizer(row["step"], Alphabet::bytes);
    for (const Json& pair : row["rows"]) {
      const std::string text = pair[0];
      PreTokens tokens{.text = {.text = text}, .pieces = {}};
      if (!text.empty()) tokens.pieces.push_back({0, text.size()});
      step->apply(tokens);
      std::vector<std::string> pieces;
      for (const Piece& p : tokens.pieces) pieces.push_back(text.substr(p.begin, p.end - p.begin));
      EXPECT_EQ(pieces, pair[1].get<std::vector<std::string>>()) << row["step"] << " of " << pair[0];
    }
  }
}

TEST(RandomTexts, UnigramsBreakTiesAndFuseUnknownsAsTheLibrary) {
  for (const Json& row : read_json(golden_file("random_unigrams"))) {
    const auto model = make_token_model(row["model"], Alphabet::characters);
    for (const Json& pair : row["rows"]) {
      std::vector<PieceToken> tokens;
      model->encode(pair[0].get_ref<const std::string&>(), tokens);
      Ids ids;
      for (const PieceToken& t : tokens) ids.push_back(t.id);
      EXPECT_EQ(ids, pair[1].get<Ids>()) << row["name"] << ": " << pair[0];
    }
  }
}

TEST(Unigram, RefusesACharacterWithoutTokenWhereNoUnknownTokenIs) {
  const Json json = Json::parse(R"({"type": "Unigram", "vocab": [["ab", -1.0], ["a", -1.0]]})");
  const auto model = make_token_model(json, Alphabet::characters);
  std::vector<PieceToken> tokens;
  model->encode("aab", tokens);
  EXPECT_EQ(tokens.size(), 2u);
  EXPECT_THROW(model->encode("ba", tokens), Error);
}

}  // namespace
}  // namespace qtrain
