// Configs as users of other tools write them; the expected settings are derived from the documentation of those tools.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/os/file.h"
#include "data/row_shapes.h"
#include "tests/config/recipes.h"
#include "tests/core/temp_folder.h"
#include "train/setup/dataset_setup.h"

namespace qtrain {
namespace {

using test::recipe;
using test::refusal_of_recipe;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The columns that LLaMA-Factory's data/README.md and data/dataset_info.json name.
TEST(LlamaFactory, RowsAreMadeOfTheColumnsThatTheRegistryNames) {
  const qtrain::testing::TempFolder folder;
  std::filesystem::create_directory(folder / "data");
  write_file(folder / "data" / "dataset_info.json", R"({
    "all": {"file_name": "all.json", "columns": {"prompt": "question", "query": "context", "response": "answer",
                                                 "system": "system_prompt", "history": "turns"}},
    "orca": {"file_name": "orca.jsonl", "columns": {"prompt": "question", "response": "answer"}},
    "wiki": {"file_name": "wiki.txt", "columns": {"prompt": "text"}},
    "web": {"file_name": "web.jsonl", "columns": {"prompt": "content"}},
    "plain": {"file_name": "plain.jsonl", "columns": {"prompt": "instruction", "query": "", "response": "output"}}})");
  write_file(folder / "data" / "plain.jsonl", R"({"instruction": "q", "output": "a", "input": "not named", )"
                                              R"("chat_template_kwargs": {"enable_thinking": false}})");
  write_file(folder / "data" / "all.json", R"([{"question": "q", "context": "c", "answer": "a", "system_prompt": "s",
                                               "turns": [["q0", "a0"]]}])");
  write_file(folder / "data" / "orca.jsonl", R"({"question": "q", "answer": "a", "input": "not named"})");
  write_file(folder / "data" / "wiki.txt", "one\ntwo\n");
  write_file(folder / "data" / "web.jsonl", R"({"content": "page", "url": "u"})");
  const auto first = [&](const char* name) {
    write_file(folder / "c.yaml", fmt::format("finetuning_type: lora\ndataset: {}\n", name));
    const RawRows rows = data_rows(load_config(folder / "c.yaml").value, Split::train);
    return read_sample(rows.parse(rows.size() - 1), {});
  };
  const Sample all = first("all"), orca = first("orca");
  EXPECT_EQ(dump_json(all.messages), R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q0"}, )"
                                     R"({"role": "assistant", "content": "a0"}, {"role": "user", "content": "q\nc"}])");
  EXPECT_EQ(all.completion[0]["content"], "a");
  EXPECT_EQ(dump_json(orca.messages), R"([{"role": "user", "content": "q"}])") << "a query is used only if it is named";
  const Sample plain = first("plain");
  EXPECT_EQ(dump_json(plain.messages), R"([{"role": "user", "content": "q"}])") << "an empty name means no column";
  EXPECT_EQ(plain.template_kwargs["enable_thinking"], false);
  EXPECT_EQ(first("wiki").text, "two");
  EXPECT_EQ(first("web").text, "page");
}

// Without a chat template, rows have no roles, so only the completion mask applies.
TEST(LlamaFactory, AFolderWithoutAChatTemplate) {
  const qtrain::testing::TempFolder folder;
  const auto config = [&](const char* more) {
    return recipe(fmt::format("finetuning_type: lora\nmodel_name_or_path: {}\n{}", folder.path().string(), more));
  };
  const ResolvedConfig r = config("");
  EXPECT_FALSE(r.value.data.assistant_only_loss);
  EXPECT_EQ(r.value.data.completion_only_loss, true);
  EXPECT_THAT(r.diagnostics.notes(), Contains(HasSubstr("has no chat template")));
  EXPECT_TRUE(config("assistant_only_loss: true\n").value.data.assistant_only_loss);
  write_file(folder / "chat_template.jinja", "{{ messages }}");
  EXPECT_TRUE(config("").value.data.assistant_only_loss);
}

TEST(Dialects, AreToldApart) {
  const auto dialect = [](const char* text) { return recipe(text).dialect; };
  EXPECT_EQ(dialect("model_name_or_path: m\ncutoff_len: 9"), "hf");
  EXPECT_EQ(dialect("base_model: m\ndatasets: [{path: d}]"), "axolotl");
  EXPECT_EQ(dialect("base_model: m\nlr_scheduler: cosine\nsequence_len: 9"), "expert");  // as before axolotl's
  EXPECT_EQ(dialect("base_model: m\nlr_scheduler: cosine\nsample_packing: true"), "axolotl");
  EXPECT_EQ(dialect("model_name_or_path: m\nfinetuning_type: lora"), "llamafactory");
  EXPECT_THAT(refusal_of_recipe("finetuning_type: lora\nsample_packing: true"), HasSubstr("their defaults differ"));
  EXPECT_EQ(dialect("dialect: axolotl\nnum_epochs: 2"), "axolotl");
  EXPECT_EQ(dialect("base_model: m\nlr_scheduler: cosine\ndatasets: [{path: d}]\nmicro_batch_size: 1"), "axolotl");
}

}  // namespace
}  // namespace qtrain
