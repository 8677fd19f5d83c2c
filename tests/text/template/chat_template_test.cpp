#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/errors.h"
#include "text/template/chat_template.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
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

class TemplateFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const fs::path& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  std::string text(const Json* tools = nullptr) {
    const Json messages = conversation();
    return ChatTemplate::load(folder_).render({.messages = &messages, .tools = tools}).text;
  }
  fs::path folder_;
};

TEST_F(TemplateFolder, TheFileBeatsTheConfig) {
  write("tokenizer_config.json", R"({"chat_template": "config", "bos_token": "<b>"})");
  EXPECT_EQ(text(), "config");
  write("chat_template.jinja", "file {{ bos_token }}");
  EXPECT_EQ(text(), "file <b>");
}

TEST_F(TemplateFolder, RowsWithToolsTakeTheirOwnTemplate) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]})");
  const Json tools = Json::array(), none = nullptr;
  EXPECT_EQ(text(), "plain");
  EXPECT_EQ(text(&none), "plain");
  EXPECT_EQ(text(&tools), "tools");
  write("chat_template.jinja", "file");
  write("additional_chat_templates/tool_use.jinja", "file with tools");
  EXPECT_EQ(text(), "file");
  EXPECT_EQ(text(&tools), "file with tools");
}

TEST_F(TemplateFolder, NoTemplateIsSaidToBeMissing) {
  write("tokenizer_config.json", R"({"bos_token": "<b>", "chat_template": null})");
  EXPECT_FALSE(ChatTemplate::exists(folder_));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { ChatTemplate::load(folder_); }), HasSubstr("no chat template"));
}

TEST_F(TemplateFolder, AConfigNamesAFileASourceOrATemplate) {
  write(
      "tokenizer_config.json",
      R"({"bos_token": "<b>", "chat_template": [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]})");
  write("other.jinja", "{{ bos_token }} of a file");
  const Json messages = conversation();
  const auto text_of = [&](const std::string& name) {
    return ChatTemplate::named(name, folder_).render({.messages = &messages}).text;
  };
  EXPECT_EQ(text_of((folder_ / "other.jinja").string()), "<b> of a file");
  EXPECT_EQ(text_of("{{ bos_token }}" + std::string(5000, '!')), "<b>" + std::string(5000, '!'));
  EXPECT_EQ(text_of("rag"), "r");
  EXPECT_THAT(text_of("Llama-3"), HasSubstr("<b><|start_header_id|>user"));
  EXPECT_THAT(test::error_of([&] { text_of("lama3"); }).what(), HasSubstr("llama3, mistral"));
}

TEST_F(TemplateFolder, OnlyOtherNamesAreRefused) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_THROW(text(), Error);
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_THROW(text(), Error);
}

TEST_F(TemplateFolder, SpecialTokensComeAsTextOrObject) {
  write("chat_template.jinja", "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}|{{ unk_token }}");
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": "<e>", "pad_token": null})");
  write("special_tokens_map.json", R"({"eos_token": "<other>", "unk_token": "<u>"})");
  EXPECT_EQ(text(), "<b>|<e>|False|<u>");
}

TEST_F(TemplateFolder, ATemplateFileTakesTheTokensOfAFolder) {
  write("model/tokenizer_config.json", R"({"bos_token": "<b>", "chat_template": "own"})");
  write("other.jinja", "{{ bos_token }}other");
  const Json messages = conversation();
  EXPECT_EQ(ChatTemplate::load(folder_ / "other.jinja", folder_ / "model").render({.messages = &messages}).text,
            "<b>other");
  EXPECT_EQ(ChatTemplate::load(folder_ / "other.jinja").render({.messages = &messages}).text, "other");
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
  // Given names are kept; the first of them that is there counts as the reasoning.
  const Json both = Json::array({{{"role", "assistant"}, {"thinking", "T"}, {"reasoning", "R"}}});
  EXPECT_EQ(render("{% set m = messages[0] %}{{ m.reasoning_content }} {{ m.thinking }} {{ m.reasoning }}", both),
            "T T R");
}

TEST(Template, ExtraVariablesComeBeforeSpecialTokensButNotBeforeMessages) {
  const Json messages = conversation(), extra = {{"bos_token", "mine"}, {"messages", "no"}, {"enable_thinking", false}};
  const ChatTemplate t("{{ bos_token }} {{ messages | length }} {{ enable_thinking }}", "t", {{"bos_token", "<s>"}});
  EXPECT_EQ(t.render({.messages = &messages, .extra = &extra}).text, "mine 2 False");
}

TEST(Template, GenerationTagsAreSearchedForAsTrlDoes) {
  const auto tags = [](const char* source) { return ChatTemplate(source, "t", {}).has_generation_tags(); };
  EXPECT_TRUE(tags("{%-   generation   -%}a{%+ endgeneration %}"));
  EXPECT_FALSE(tags("{% if add_generation_prompt %}{% endif %}"));
  EXPECT_FALSE(tags("{# generation %} {% generations %} {% generation #}"));
  // In a comment too, so that such a template marks nothing.
  EXPECT_TRUE(tags("{# {%generation -%} #}"));
  EXPECT_TRUE(tags("{% raw %}{%- generation %}{% endgeneration %}{% endraw %}"));
}

TEST(Template, HostileTemplatesEnd) {
  const std::string many(100'000, '(');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "too many steps"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply"},
      {"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "nested too deeply"},
      {"{{ 'a' * 10 ** 12 }}", "too large"},
      {"{{ [1] * 10 ** 12 }}", "too large"},
      {"{{ 'a'.ljust(10 ** 12) }}", "too large"},
      {"{{ '%1000000000s' % 'a' }}", "too large"},
      {"{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "too large"},
      {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "too large"},
      {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
       "too"},
      {"{% set a = namespace(s=[1]) %}{% set b = namespace(s=[1]) %}{% for i in range(99) %}{% set a.s = [a.s, a.s] %}"
       "{% set b.s = [b.s, b.s] %}{% endfor %}{{ a.s == b.s }}",
       "too"},
      {"{{ range(10 ** 9) }}", "Range too big"},
      {"{{ 2 ** 1000 }}", "127 bits"},
      {"{{ " + many + "1" + std::string(100'000, ')') + " }}", "too deeply"},
      {"{{ " + std::string(100'000, '-') + "1 }}", "too deeply"},
      {"{{ 1" + std::string(100'000, '+') + "1 }}", "too deeply"},
      {"{{ x" +
           [] {
             std::string s;
             for (int i = 0; i < 50'000; ++i) s += ".a";
             return s;
           }() +
           " }}",
       "too many"},
      {"{{ 1" +
           [] {
             std::string s;
             for (int i = 0; i < 50'000; ++i) s += "+1";
             return s;
           }() +
           " }}",
       "too many"},
      {[] {
         std::string s;
         for (int i = 0; i < 50'000; ++i) s += "{% if 1 %}";
         return s;
       }(),
       "too deeply"},
      {"{{ 'a'.replace('', 'x' * 10000000) * 9 }}", "too large"}};
  for (const auto& [source, why] : cases) EXPECT_THAT(error_of(source), HasSubstr(why)) << source.substr(0, 100);
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
