#include "text/template/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/errors.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Json greeting() {
  return Json::array({{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "Yo"}}});
}

class ChatTemplateFolder : public testing::Test {
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
    const Json messages = greeting();
    return load_chat_template(folder_).render({.messages = &messages, .tools = tools}).text;
  }
  fs::path folder_;
};

TEST_F(ChatTemplateFolder, TheFileBeatsTheConfig) {
  write("tokenizer_config.json", R"({"chat_template": "config", "bos_token": "<b>"})");
  EXPECT_EQ(text(), "config");
  write("chat_template.jinja", "file {{ bos_token }}");
  EXPECT_EQ(text(), "file <b>");
}

TEST_F(ChatTemplateFolder, RowsWithToolsTakeTheirOwnTemplate) {
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

TEST_F(ChatTemplateFolder, NoTemplateIsSaidToBeMissing) {
  write("tokenizer_config.json", R"({"bos_token": "<b>", "chat_template": null})");
  EXPECT_FALSE(has_chat_template(folder_));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { load_chat_template(folder_); }), HasSubstr("no chat template"));
}

TEST_F(ChatTemplateFolder, AConfigNamesAFileASourceOrATemplate) {
  write(
      "tokenizer_config.json",
      R"({"bos_token": "<b>", "chat_template": [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]})");
  write("other.jinja", "{{ bos_token }} of a file");
  const Json messages = greeting();
  const auto text_of = [&](const std::string& name) {
    return load_named_template(name, folder_).render({.messages = &messages}).text;
  };
  EXPECT_EQ(text_of((folder_ / "other.jinja").string()), "<b> of a file");
  EXPECT_EQ(text_of("{{ bos_token }}" + std::string(5000, '!')), "<b>" + std::string(5000, '!'));
  EXPECT_EQ(text_of("rag"), "r");
  EXPECT_THAT(text_of("Llama-3"), HasSubstr("<b><|start_header_id|>user"));
  EXPECT_THAT(test::error_of([&] { text_of("lama3"); }).what(), HasSubstr("llama3, mistral"));
}

TEST_F(ChatTemplateFolder, OnlyOtherNamesAreRefused) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_THROW(text(), Error);
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_THROW(text(), Error);
}

TEST_F(ChatTemplateFolder, SpecialTokensComeAsTextOrObject) {
  write("chat_template.jinja", "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}|{{ unk_token }}");
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": "<e>", "pad_token": null})");
  write("special_tokens_map.json", R"({"eos_token": "<other>", "unk_token": "<u>"})");
  EXPECT_EQ(text(), "<b>|<e>|False|<u>");
}

TEST_F(ChatTemplateFolder, ATemplateFileTakesTheTokensOfAFolder) {
  write("model/tokenizer_config.json", R"({"bos_token": "<b>", "chat_template": "own"})");
  write("other.jinja", "{{ bos_token }}other");
  const Json messages = greeting();
  EXPECT_EQ(load_chat_template(folder_ / "other.jinja", folder_ / "model").render({.messages = &messages}).text,
            "<b>other");
  EXPECT_EQ(load_chat_template(folder_ / "other.jinja").render({.messages = &messages}).text, "other");
}

}  // namespace
}  // namespace qtrain
