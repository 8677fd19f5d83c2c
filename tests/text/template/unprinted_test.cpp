#include "text/template/unprinted.h"

#include <gmock/gmock.h>

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

}  // namespace
}  // namespace qtrain
