#include <gmock/gmock.h>

#include "app/serve/answer_text.h"
#include "app/serve/replies.h"
#include "app/serve/service.h"
#include "app/serve/tool_calls.h"
#include "train/setup/text_folder.h"

namespace qtrain::serve {
namespace {

using ::testing::ElementsAre;

TextFolder chatml() {
  return load_text_folder(std::filesystem::path(QTRAIN_SOURCE_DIR) / "tests/data/golden/chatml");
}

/// The text of an answer shown token by token, and whether it was stopped.
struct Shown {
  std::vector<std::string> pieces;
  std::string tokens;
  bool stopped = false;
};
Shown show(const std::string& text, const std::vector<std::string>& stop) {
  const TextFolder folder = chatml();
  AnswerText answer(*folder.tokenizer, stop);
  Shown out;
  AnswerText::Piece piece;
  const auto take = [&] {
    if (!piece.text.empty()) out.pieces.push_back(piece.text);
    for (const TextToken& t : piece.tokens) out.tokens += t.text;
    piece = {};
  };
  for (const std::int32_t id : folder.tokenizer->encode(text, {.add_special = false})) {
    out.stopped = answer.push({.id = id}, piece);
    take();
    if (out.stopped) break;
  }
  answer.finish(piece);
  take();
  return out;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string out;
  for (const std::string& p : pieces) out += p;
  return out;
}

TEST(AnswerText, ComesInWholeCharacters) {
  const std::string text = "caf\u00e9 \u4f60\u597d \U0001f600!";
  const Shown shown = show(text, {});
  EXPECT_EQ(joined(shown.pieces), text);
  EXPECT_EQ(shown.tokens, text);
  EXPECT_GT(shown.pieces.size(), 5u);
  for (const std::string& piece : shown.pieces)
    EXPECT_NO_THROW(static_cast<void>(Json(piece).dump())) << "not whole: " << piece;
}

/// The tokens of an answer with this text, each with candidates.
std::vector<TextToken> tokens_of(const std::string& text, const std::vector<std::int32_t>& candidates) {
  const TextFolder folder = chatml();
  AnswerText answer(*folder.tokenizer, {});
  AnswerText::Piece piece;
  AnswerToken token;
  for (const std::int32_t id : candidates) token.top.emplace_back(id, -1);
  for (const std::int32_t id : folder.tokenizer->encode(text, {.add_special = false})) {
    token.id = id;
    answer.push(token, piece);
  }
  answer.finish(piece);
  return piece.tokens;
}

TEST(AnswerText, TokensHaveTheirOwnBytes) {
  const std::string text = "caf\u00e9 \u4f60\u597d \U0001f600!";
  std::string bytes;
  for (const TextToken& t : tokens_of(text, {})) bytes += t.bytes;
  EXPECT_EQ(bytes, text);
  const auto tokens = tokens_of("\U0001f600", {});
  ASSERT_GT(tokens.size(), 1u) << "the character is several tokens";
  EXPECT_EQ(tokens.front().text, "");
  EXPECT_EQ(tokens.front().bytes.front(), '\xf0');
  EXPECT_EQ(tokens.back().text, "\U0001f600");
  EXPECT_EQ(tokens.back().bytes.back(), '\x80');
}

// Several candidates may have the same text, or only a part of a character.
TEST(Replies, CandidatesDoNotCollide) {
  const TextFolder folder = chatml();
  const auto parts = folder.tokenizer->encode("\U0001f600", {.add_special = false});
  ASSERT_GT(parts.size(), 1u);
  const std::int32_t letter = folder.tokenizer->encode("a", {.add_special = false}).front();
  const std::vector<std::int32_t> candidates{letter, letter, parts[0], parts[1]};
  for (const bool is_chat : {false, true}) {
    ApiRequest request;
    request.endpoint = is_chat ? Endpoint::chat : Endpoint::completions;
    request.prompts = {{1}};
    request.top_logprobs = static_cast<std::int64_t>(candidates.size());
    Replies replies(request, "m");
    AnswerEvent event;
    event.piece.tokens = tokens_of("a", candidates);
    event.piece.text = "a";
    const std::vector<Json> chunks = replies.chunks(event);
    ASSERT_FALSE(chunks.empty());
    const Json logprobs = chunks.front()["choices"][0]["logprobs"];
    const Json top = is_chat ? logprobs["content"][0]["top_logprobs"] : logprobs["top_logprobs"][0];
    ASSERT_EQ(top.size(), candidates.size()) << top;
    const std::string bytes = token_bytes(*folder.tokenizer, parts.front());
    if (is_chat) {
      EXPECT_EQ(top[2]["bytes"], Json(std::vector<unsigned char>(bytes.begin(), bytes.end())));
      continue;
    }
    std::string name = "bytes:";
    for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    for (const std::string& key : {std::string("a"), "token_id:" + std::to_string(letter), name})
      EXPECT_TRUE(top.contains(key)) << key << " " << top;
  }
}

TEST(AnswerText, EndsBeforeAStopText) {
  const Shown shown = show("one two three", {"hre", "o th", "wxyz"});
  EXPECT_TRUE(shown.stopped);
  EXPECT_EQ(joined(shown.pieces), "one tw");
}

TEST(AnswerText, ShowsInTheEndWhatOnlyBeganLikeOne) {
  const Shown shown = show("count to th", {"three"});
  EXPECT_FALSE(shown.stopped);
  EXPECT_EQ(joined(shown.pieces), "count to th");
  EXPECT_EQ(shown.tokens, "count to th");
}

struct Read {
  std::string text;
  std::vector<std::string> calls;
};
Read read(const std::string& answer, std::size_t step) {
  ToolCallReader reader;
  Read out;
  const auto take = [&](const ToolCallReader::Found& found) {
    out.text += found.text;
    for (const ToolCall& c : found.calls) out.calls.push_back(c.name + c.arguments);
  };
  for (std::size_t i = 0; i < answer.size(); i += step) take(reader.push(answer.substr(i, step)));
  take(reader.finish());
  EXPECT_EQ(reader.has_calls(), !out.calls.empty());
  return out;
}

TEST(ToolCalls, AreFoundHoweverTheTextIsCut) {
  const std::string answer =
      "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\n<tool_call>\n"
      "{\"name\": \"g\"}\n</tool_call>\n";
  for (const std::size_t step : {1, 2, 7, 500}) {
    const Read found = read(answer, step);
    EXPECT_EQ(found.text, "Let me see.") << step;
    EXPECT_THAT(found.calls, ElementsAre("f{\"x\": 1}", "g{}")) << step;
  }
}

TEST(ToolCalls, WithoutTheirEndTagAreFoundInTheEnd) {
  EXPECT_THAT(read("<tool_call>{\"name\": \"f\"}", 3).calls, ElementsAre("f{}"));
}

TEST(AnswerText, IdsBeyondTheTokenizerHaveNoText) {
  const TextFolder folder = chatml();
  AnswerText answer(*folder.tokenizer, {});
  AnswerText::Piece piece;
  const std::int32_t beyond = folder.tokenizer->size() + 3;
  EXPECT_FALSE(answer.push({.id = beyond, .top = {{beyond, -1.0}}}, piece));
  answer.finish(piece);
  EXPECT_EQ(piece.text, "");
}

TEST(ToolCalls, NestedTooDeeplyAreText) {
  const std::string text = "<tool_call>" + std::string(100000, '[') + "</tool_call>";
  EXPECT_TRUE(read(text, 50000).calls.empty());
}

TEST(ToolCalls, WhatIsNoneStaysText) {
  for (const std::string text :
       {"a < b, <tool> and <tool_c", "<tool_call>{\"nam</tool_call> b", "<tool_call>{\"name\": 1}"})
    for (const std::size_t step : {1, 4, 500}) {
      const Read found = read(text, step);
      EXPECT_EQ(found.text, text) << step;
      EXPECT_TRUE(found.calls.empty());
    }
}

TEST(Secrets, AreComparedWhole) {
  EXPECT_TRUE(same_secret("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd"}) EXPECT_FALSE(same_secret("abc", other)) << other;
}

}  // namespace
}  // namespace qtrain::serve
