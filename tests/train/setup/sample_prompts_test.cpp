#include "train/setup/sample_prompts.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

/// Prompts in a file, for a model whose template supports tools and a variable enable_thinking.
class SamplePromptRows : public ::testing::Test {
 protected:
  SamplePromptRows() {
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
      std::filesystem::copy_file(std::filesystem::path(QTRAIN_SOURCE_DIR) / "tests/data/golden/chatml" / name,
                                 folder_ / name);
    write_file(folder_ / "config.json", "{}");
  }
  SamplePrompts load(const std::string& row) const {
    write_file(folder_ / "prompts.jsonl", row + "\n");
    Config config;
    config.model.model_name_or_path = folder_.path().string();
    config.training.sample_prompts = {(folder_ / "prompts.jsonl").string()};
    ModelConfig model;
    model.max_position_embeddings = 1000;
    return load_sample_prompts(config, model);
  }
  std::string error_of_row(const std::string& row) const {
    return test::error_of([&] { load(row); }).what();
  }

  testing::TempFolder folder_;
};

TEST_F(SamplePromptRows, AreRenderedWithWhatStandsBesideThem) {
  struct Case {
    std::string row, text, shown;
  };
  const std::string user = "<|im_start|>user\nhi<|im_end|>\n", answer = "<|im_start|>assistant\n",
                    tools = "<|im_start|>system look_up<|im_end|>\n";
  for (
      const auto& [row, text, shown] : {
          Case{R"({"prompt": "hi"})", user + answer, "hi"},
          Case{R"({"messages": [{"role": "user", "content": "hi"}], "tools": [{"name": "look_up"}]})",
               tools + user + answer, "hi"},
          Case{
              R"({"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": {"enable_thinking": true}})",
              user + answer + "<think>", "hi"},
          Case{R"({"prompt": "hi", "tools": [{"name": "look_up"}], "chat_template_kwargs": {"enable_thinking": true}})",
               tools + user + answer + "<think>", "hi"},
          // Rows as for training and evaluation: with an answer, and a column of tools as text.
          Case{R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}],
                    "tools": "[{\"name\": \"look_up\"}]"})",
               tools + user + answer, "hi"},
          Case{R"({"prompt": [{"role": "user", "content": "hi"}], "tools": null,
                    "completion": [{"role": "assistant", "content": "ho"}]})",
               user + answer, "hi"},
          Case{
              R"({"system": "yes", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]})",
              "<|im_start|>system\nyes<|im_end|>\n" + user + answer, "hi"},
      }) {
    SCOPED_TRACE(row);
    const std::string line = dump_json(parse_json(row, "row"));
    const SamplePrompts samples = load(line);
    ASSERT_EQ(samples.requests.size(), 1u);
    EXPECT_EQ(samples.text.tokenizer->decode(samples.requests[0].prompt), text);
    EXPECT_EQ(samples.shown[0], shown);
  }
}

TEST_F(SamplePromptRows, AreRefusedWhereTheModelWouldNotSeeTheTools) {
  const std::string row = R"({"prompt": "hi", "tools": [{"name": "look_up"}]})";
  write_file(folder_ / "chat_template.jinja", "{% for message in messages %}{{ message.content }}{% endfor %}");
  EXPECT_THAT(error_of_row(row), HasSubstr("the chat template drops the tools"));
  EXPECT_THAT(error_of_row(row), HasSubstr("prompts.jsonl:1"));
  std::filesystem::remove(folder_ / "chat_template.jinja");
  EXPECT_THAT(error_of_row(row), HasSubstr("no chat template"));
}

TEST_F(SamplePromptRows, NameTheRowThatAsksNothing) {
  for (const char* row :
       {R"({"answer": "ho"})", R"({"messages": []})", R"({"messages": [{"role": "assistant", "content": "ho"}]})",
        R"({"messages": [{"content": "hi"}]})", R"({"prompt": "hi", "tools": 3})",
        R"({"prompt": "hi", "chat_template_kwargs": []})", "[]"})
    EXPECT_THAT(error_of_row(row), HasSubstr("prompts.jsonl:1")) << row;
}

}  // namespace
}  // namespace qtrain
