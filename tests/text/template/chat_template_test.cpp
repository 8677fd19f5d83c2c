#include "text/template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "tests/errors.h"

namespace qtrain {
namespace {

using testing::HasSubstr;

Json conversation() {
  return Json::array({{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "Yo"}}});
}

std::string render(const std::string& source, const Json& messages = conversation()) {
  return ChatTemplate(source, "chat_template.jinja", {}).render({.messages = &messages}).text;
}

std::string error_of(const std::string& source, const Json& messages = conversation()) {
  return test::error_of(ErrorKind::input, [&] { render(source, messages); });
}

TEST(Template, ErrorsNameTemplateAndLine) {
  EXPECT_THAT(error_of("a\n\n{{ messages[0].nope.deep }}"),
              HasSubstr("chat_template.jinja:3: 'dict object' has no attribute 'nope'"));
  EXPECT_THAT(error_of("{% for m in messages %}\n{{ raise_exception('roles must alternate') }}{% endfor %}"),
              testing::AllOf(HasSubstr("chat_template.jinja:2:"), HasSubstr("roles must alternate")));
  EXPECT_THAT(error_of("a\n{% if %}"), HasSubstr("chat_template.jinja:2: template syntax error"));
}

TEST(Template, MalformedConversationsAreRefused) {
  EXPECT_THAT(error_of("x", Json::array()), HasSubstr("no messages"));
  EXPECT_THAT(error_of("x", Json::object()), HasSubstr("not a list"));
  EXPECT_THAT(error_of("x", Json::array({"text"})), HasSubstr("not an object"));
}

TEST(Template, NullKeysAreAbsentAndReasoningHasAllItsNames) {
  const Json messages = Json::array({{{"role", "assistant"}, {"content", nullptr}, {"reasoning", "R"}}});
  EXPECT_EQ(render("{% set m = messages[0] %}{{ m.content is defined }} {{ m.reasoning_content }} {{ m.thinking }}",
                   messages),
            "False R R");
  // Existing names are kept; the first one that is present counts as the reasoning.
  const Json both = Json::array({{{"role", "assistant"}, {"thinking", "T"}, {"reasoning", "R"}}});
  EXPECT_EQ(render("{% set m = messages[0] %}{{ m.reasoning_content }} {{ m.thinking }} {{ m.reasoning }}", both),
            "T T R");
}

TEST(Template, ExtraVariablesComeBeforeSpecialTokensButNotBeforeMessages) {
  const Json messages = conversation(), extra = {{"bos_token", "mine"}, {"messages", "no"}, {"enable_thinking", false}};
  const ChatTemplate t("{{ bos_token }} {{ messages | length }} {{ enable_thinking }}", "t", {{"bos_token", "<s>"}});
  EXPECT_EQ(t.render({.messages = &messages, .extra = &extra}).text, "mine 2 False");
}

// Each call of a macro binds all of its parameters.
TEST(Template, CallsOfMacrosWithManyParametersAreCounted) {
  std::string parameters = "a0";
  for (int i = 1; i < 50'000; ++i) parameters += ", a" + std::to_string(i);
  EXPECT_THAT(
      error_of("{% macro m(" + parameters + ") %}{% endmacro %}{% for i in range(3000) %}{{ m() }}{% endfor %}"),
      HasSubstr("takes too many steps"));
}

// Clients of a server may name any number of variables.
TEST(Template, ManyExtraVariablesTakeNoLongerThanTheirNumber) {
  std::string text = "{\"v\": 0";
  for (int i = 0; i < 100'000; ++i) text += ", \"v" + std::to_string(i) + "\": " + std::to_string(i);
  const Json extra = parse_json(text + "}", "extra"), messages = conversation();
  const std::clock_t start = std::clock();
  EXPECT_EQ(ChatTemplate("{{ v0 }} {{ v99999 }}", "", {}).render({.messages = &messages, .extra = &extra}).text,
            "0 99999");
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
}

TEST(Template, GenerationTagsAreSearchedForAsTrlDoes) {
  const auto tags = [](const char* source) { return ChatTemplate(source, "t", {}).has_generation_tags(); };
  EXPECT_TRUE(tags("{%-   generation   -%}a{%+ endgeneration %}"));
  EXPECT_FALSE(tags("{% if add_generation_prompt %}{% endif %}"));
  EXPECT_FALSE(tags("{# generation %} {% generations %} {% generation #}"));
  // Even in a comment, although such a template marks nothing.
  EXPECT_TRUE(tags("{# {%generation -%} #}"));
  EXPECT_TRUE(tags("{% raw %}{%- generation %}{% endgeneration %}{% endraw %}"));
}

TEST(Template, RendersFromManyThreads) {
  const ChatTemplate t(
      "{% macro m(x) %}{{ x }}{% endmacro %}{% set ns = namespace(n=0) %}{% for m_ in messages %}{% set ns.n = ns.n + "
      "1 %}"
      "{{ m(m_.content) }}{{ ns.n }}{% endfor %}",
      "t", {});
  std::vector<std::thread> threads;
  std::vector<std::string> texts(8);
  for (std::size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&, i] {
      Json messages = conversation();
      messages[0]["content"] = std::to_string(i);
      for (int n = 0; n < 200; ++n) texts[i] = t.render({.messages = &messages}).text;
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::to_string(i) + "1Yo2");
}

}  // namespace
}  // namespace qtrain
