#include "text/template/assistant_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

#include "core/os/file.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using testing::ElementsAre;

const std::filesystem::path kTemplates =
    std::filesystem::path(QTRAIN_SOURCE_DIR) / "tests/text/goldens/template/templates";

ChatTemplate family(const std::string& name) {
  return ChatTemplate(read_text(kTemplates / (name + ".jinja")), name, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
}

Json message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

/// The texts in the assistant's ranges.
std::vector<std::string> spoken(const ChatTemplate& t, const Json& messages, const Json* extra = nullptr) {
  const Rendered r = render_with_assistant_ranges(t, {.messages = &messages, .extra = extra});
  std::vector<std::string> texts;
  for (const auto& [begin, end] : r.generated) texts.push_back(r.text.substr(begin, end - begin));
  return texts;
}

const Json kTurns = Json::array({message("system", "S"), message("user", "Q1"), message("assistant", "A é 1"),
                                 message("user", "Q2"), message("assistant", "A2")});

TEST(AssistantRanges, ComeFromGenerationTagsWhereThereAreSome) {
  EXPECT_THAT(spoken(family("chatml_generation"), kTurns), ElementsAre("A é 1<|im_end|>", "A2<|im_end|>"));
}

TEST(AssistantRanges, ReachFromThePromptToTheEndOfTheTurnWithoutTags) {
  EXPECT_THAT(spoken(family("smollm2"), kTurns), ElementsAre("A é 1<|im_end|>\n", "A2<|im_end|>\n"));
  EXPECT_THAT(spoken(family("qwen2_5"), kTurns), ElementsAre("A é 1<|im_end|>\n", "A2<|im_end|>\n"));
  EXPECT_THAT(spoken(family("llama3_style"), kTurns), ElementsAre("A é 1<|eot_id|>", "A2<|eot_id|>"));
}

TEST(AssistantRanges, AreKnownWhereEarlierTurnsLoseTheirReasoning) {
  // Qwen3 writes a thinking block only into the last turn.
  EXPECT_THAT(spoken(family("qwen3"), kTurns),
              ElementsAre("A é 1<|im_end|>\n", "<think>\n\n</think>\n\nA2<|im_end|>\n"));
  Json reasoned = kTurns;
  reasoned[2]["reasoning_content"] = reasoned[4]["reasoning_content"] = "R";
  EXPECT_THAT(spoken(family("qwen3"), reasoned),
              ElementsAre("A é 1<|im_end|>\n", "<think>\nR\n</think>\n\nA2<|im_end|>\n"));
}

TEST(AssistantRanges, AreKnownWhereASystemTextMovesAlong) {
  // Mistral puts the system text into the last user turn, so a prompt is not a prefix of a longer conversation: then
  // turns begin with their content, without the space before it.
  EXPECT_THAT(spoken(family("mistral_style"), kTurns), ElementsAre("A é 1</s>", "A2</s>"));
}

TEST(AssistantRanges, IncludeToolCalls) {
  const Json call = {{"role", "assistant"},
                     {"content", ""},
                     {"tool_calls", Json::array({{{"function", {{"name", "f"}, {"arguments", {{"x", 1}}}}}}})}};
  const Json messages = Json::array({message("user", "Q"), call, message("tool", "5"), message("assistant", "Five.")});
  EXPECT_THAT(spoken(family("qwen2_5"), messages),
              ElementsAre("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>\n",
                          "Five.<|im_end|>\n"));
}

TEST(AssistantRanges, BeginWithTheContentOfAGreeting) {
  const Json messages = Json::array({message("assistant", "Hello!"), message("user", "Q"), message("assistant", "A")});
  EXPECT_THAT(spoken(family("smollm2"), messages), ElementsAre("Hello!<|im_end|>\n", "A<|im_end|>\n"));
}

TEST(AssistantRanges, AreEmptyWithoutAnAssistant) {
  EXPECT_THAT(spoken(family("smollm2"), Json::array({message("user", "Q")})), ElementsAre());
}

TEST(AssistantRanges, AreNeverGuessed) {
  const auto unplaced = [](const char* source) {
    const Rendered r = render_with_assistant_ranges(ChatTemplate(source, "t", {}), {.messages = &kTurns});
    EXPECT_TRUE(r.generated.empty());
    return r.unplaced;
  };
  // The assistant's text comes before the questions.
  EXPECT_THAT(unplaced("{% for m in messages | sort(attribute='role') %}{{ m.role }}:{{ m.content }};{% endfor %}"),
              testing::HasSubstr("cannot locate the assistant's text in message 2"));
  // The conversation begins with its length.
  EXPECT_THAT(unplaced("{{ messages | map(attribute='content') | join | length }}{% for m in messages %}{{ m.content "
                       "}}{% endfor %}"),
              testing::HasSubstr("cannot locate the assistant's text in message 2"));
  // The template rejects prefixes of this conversation.
  EXPECT_THAT(unplaced("{% if messages | length < 5 %}{{ raise_exception('short') }}{% endif %}"
                       "{% for m in messages %}{{ m.content | upper }}{% endfor %}"),
              testing::HasSubstr("the template changes its beginning"));
}

TEST(AssistantRanges, OfEarlierMessagesNeedNotBeFound) {
  const auto last = [](const char* source) {
    return render_with_assistant_ranges(ChatTemplate(source, "t", {}), {.messages = &kTurns}, {.first = 4});
  };
  const Rendered found =
      last("{% for m in messages %}{{ m.content if loop.last else m.content | length }};{% endfor %}");
  ASSERT_EQ(found.generated.size(), 1u) << found.unplaced;
  EXPECT_EQ(found.text.substr(found.generated[0].first), "A2;");
  EXPECT_THAT(
      last("{% for m in messages | sort(attribute='role') %}{{ m.role }}:{{ m.content }};{% endfor %}").unplaced,
      testing::HasSubstr("in message 4: earlier messages come after it"));
}

TEST(AssistantRanges, HaveNoKnownPlaceInAMacro) {
  const ChatTemplate macro("{% macro m(x) %}:{% generation %}{{ x }}{% endgeneration %}{% endmacro %}{{ m('a') }}", "t",
                           {});
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { spoken(macro, kTurns); }), testing::HasSubstr("inside a macro"));
}

// Each turn takes renderings of all before it, so there is a limit to the time of a conversation: about ten seconds.
TEST(AssistantRanges, AreNotLookedForInEndlessConversations) {
  const ChatTemplate chatml = family("smollm2");
  const auto unplaced = [&](int turns, AssistantSearch search = {}) {
    Json::array_t messages;
    for (int i = 0; i < turns; ++i) {
      messages.push_back(message("user", "q"));
      messages.push_back(message("assistant", "a"));
    }
    const Json all = messages;
    return render_with_assistant_ranges(chatml, {.messages = &all}, search).unplaced;
  };
  EXPECT_EQ(unplaced(200), "");
  const AssistantSearch limited{.max_work = AssistantSearch().max_work / 50};
  const std::clock_t begin = std::clock();
  EXPECT_THAT(unplaced(20'000, limited), testing::HasSubstr("too many turns"));
  EXPECT_LT(std::clock() - begin, 3 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace qtrain
