#include "text/template/unprinted.h"

#include <gmock/gmock.h>

#include <chrono>

#include "tests/core/colliding_keys.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The parts that a template drops: "the tools", "the tool_calls of message 1, empty".
std::vector<std::string> left_out(const char* source, const Json& row) {
  const ChatTemplate chat(source, "t", {});
  const Json &messages = row.at("messages"), tools = row.value("tools", Json());
  std::vector<std::string> names;
  for (const Unprinted& lost : unprinted_parts(chat, {.messages = &messages, .tools = &tools}))
    names.push_back(lost.name() + (lost.empties_turn ? ", empty" : ""));
  return names;
}

constexpr const char *kTexts =
                         "{% for m in messages %}{{ m.role }}:{{ m.content if m.content is string }};{% endfor %}",
                     *kPrintsAll =
                         "{{ tools | tojson if tools }}{% for m in messages %}{{ m.role }}:{{ m.reasoning_content }}"
                         "{{ m.content if m.content is string else m.content | tojson }}{{ m.tool_calls | tojson if "
                         "m.tool_calls }}{{ m.function_call | tojson if m.function_call }};{% endfor %}",
                     *kNamesTools =
                         "{% for t in tools or [] %}{{ (t.function or t).name }}{% endfor %}"
                         "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
                         "{{ c.function.name }}{% endfor %}{% endfor %}",
                     *kFirstCall =
                         "{% for m in messages %}{{ m.content }}{% if m.tool_calls %}"
                         "{{ m.tool_calls[0].function.name }}{% endif %}{% endfor %}",
                     *kNoTools = "{% if tools %}{{ raise_exception('no tools') }}{% endif %}";

TEST(Unprinted, PartsOfWhichNothingIsWrittenAreNamed) {
  const Json user = {{"role", "user"}, {"content", "q"}}, f = {{"function", {{"name", "f"}, {"arguments", {}}}}};
  const auto talk = [&](const Json& answer, const Json& tools = Json()) {
    Json a = {{"role", "assistant"}};
    a.update(answer);
    return Json{{"messages", {user, a}}, {"tools", tools}};
  };
  const Json part = {{"type", "text"}, {"text", "a"}};
  const struct {
    Json row;
    std::vector<std::string> of_texts;
  } cases[] = {
      {talk({{"content", "a"}}), {}},
      {talk({{"content", "a"}}, Json::array({f})), {"the tools"}},
      {talk({{"content", "a"}}, Json::array({{{"name", "f"}}})), {"the tools"}},
      {talk({{"content", ""}, {"tool_calls", Json::array({f})}}), {"the tool_calls of message 1, empty"}},
      {talk({{"content", "a"}, {"tool_calls", Json::array({f})}}), {"the tool_calls of message 1"}},
      {talk({{"content", nullptr}, {"function_call", {{"name", "f"}}}}), {"the function_call of message 1, empty"}},
      {talk({{"content", {part, part}}}), {"the content of message 1, empty"}},
      {talk({{"content", {"a", "b"}}}), {"the content of message 1, empty"}},
      {talk({{"content", 4}}), {"the content of message 1, empty"}},
      {talk({{"content", true}}), {"the content of message 1, empty"}},
      {talk({{"content", "a"}, {"reasoning_content", "r"}}), {"the reasoning of message 1"}},
      {talk({{"content", "a"}, {"thinking", "r"}}), {"the reasoning of message 1"}},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(left_out(kTexts, c.row), c.of_texts) << c.row;
    EXPECT_THAT(left_out(kPrintsAll, c.row), IsEmpty()) << c.row;
  }
  EXPECT_THAT(left_out(kNamesTools, talk({{"content", ""}, {"tool_calls", {f, f}}}, {f, f})), IsEmpty());
  EXPECT_THAT(left_out(kFirstCall, talk({{"content", ""}, {"tool_calls", {f, f}}})),
              ElementsAre("the tool_calls of message 1"));
  EXPECT_THAT(left_out(kNoTools, talk({{"content", "a"}}, Json::array({f}))), IsEmpty())
      << "the template itself reports it";
}

TEST(Unprinted, AmongMessagesWithNumbersThoseThatAreDroppedAreNamed) {
  const auto talk = [](const std::vector<Json>& contents) {
    Json messages = Json::array();
    for (const Json& content : contents) messages.push_back({{"role", "assistant"}, {"content", content}});
    return Json{{"messages", std::move(messages)}};
  };
  const char *evens =
                 "{% for m in messages %}{{ m.content if m.content is string or m.content % 2 == 0 }};{% endfor %}",
             *numbers = "{% for m in messages %}{{ m.content if m.content is number }};{% endfor %}";
  EXPECT_THAT(left_out(evens, talk({2, 3, "a", 4})), ElementsAre("the content of message 1, empty"));
  EXPECT_THAT(left_out(numbers, talk({2, 7301402503, 0.5, true})), IsEmpty());
  EXPECT_THAT(left_out(kTexts, talk({2, true, 0.5})),
              ElementsAre("the content of message 0, empty", "the content of message 1, empty",
                          "the content of message 2, empty"));
}

// The time that a conversation takes grows with its size, not with its square.
TEST(Unprinted, LongConversationsAreCheckedInTime) {
  constexpr int kMany = 60'000;
  Json tools = Json::array(), calls = Json::array(), numbers = Json::array();
  for (int i = 0; i < kMany; ++i) {
    tools.push_back({{"name", "f" + std::to_string(i)}});
    numbers.push_back({{"role", "user"}, {"content", i}});
    calls.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({{{"name", "f"}}})}});
  }
  const Json user = Json::array({{{"role", "user"}, {"content", "q"}}});
  const struct {
    const char *name, *source;
    Json row;
    std::size_t lost;
  } cases[] = {{"tools", kPrintsAll, {{"messages", user}, {"tools", tools}}, 0},
               {"tools that are dropped", kTexts, {{"messages", user}, {"tools", tools}}, 1},
               {"calls that are dropped", kTexts, {{"messages", calls}}, kMany},
               {"numbers", kPrintsAll, {{"messages", numbers}}, 0},
               {"numbers that are dropped", kTexts, {{"messages", numbers}}, kMany}};
  for (const auto& c : cases) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(left_out(c.source, c.row).size(), c.lost) << c.name;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << c.name;
  }
  const char* half = "{% for m in messages %}{{ m.content if m.content is string or m.content < 30000 }};{% endfor %}";
  EXPECT_THAT(test::error_of(ErrorKind::input,
                             [&] {
                               left_out(half, {{"messages", numbers}});
                             }),
              ::testing::HasSubstr("neither text nor a list"));
}

// A text that contains what looks like marks, with numbers that would fall into one bucket of a set.
TEST(Unprinted, NumbersOfMarksThatCollideTakeNoLonger) {
  constexpr std::size_t kMarks = 20'000;
  const auto seconds = [](const std::vector<std::int64_t>& numbers) {
    std::string text;
    for (const std::int64_t number : numbers) text += "qtrainmark" + std::to_string(number) + "x";
    const Json row{{"messages", {{{"role", "user"}, {"content", text}}}}, {"tools", {{{"name", "f"}}}}};
    return hostile::cpu_seconds([&] { EXPECT_THAT(left_out(kNamesTools, row), IsEmpty()); });
  };
  std::vector<std::int64_t> ordinary;
  for (std::size_t i = 0; i < kMarks; ++i) ordinary.push_back(static_cast<std::int64_t>(1'000'000'000 + 31 * i));
  EXPECT_LT(seconds(hostile::numbers_of_one_bucket(kMarks)), 5 * seconds(ordinary));
}

}  // namespace
}  // namespace qtrain
