// Configs as axolotl users write them; the expected settings are derived from axolotl's documentation.
#include <fmt/format.h>
#include <gmock/gmock.h>

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

TEST(Axolotl, TheCommandLineWinsOverBothWaysToSayIt) {
  const std::string_view text = "base_model: m\nval_set_size: 0.1\nevals_per_epoch: 4\n";
  EXPECT_EQ(recipe(text, {{"eval_steps", "7"}}).value.training.eval_steps, 7);
  EXPECT_EQ(recipe(text, {{"evals_per_epoch", "2"}}).value.training.eval_steps, 0.5);
  EXPECT_THAT(refusal_of_recipe("base_model: m\nval_set_size: 0.1\nevals_per_epoch: 4\neval_steps: 9\n"),
              HasSubstr("\"evals_per_epoch\" and \"eval_steps\" are both given"));
}

// A run has a single split for evaluation rows: it selects files in folders, and may take a part of each file.
TEST(Axolotl, EvaluationSourcesOfOneSplitAreReadAndOthersRefused) {
  const auto config = [](const char* sources) {
    return fmt::format("base_model: m\nval_set_size: 0\nmicro_batch_size: 1\ntest_datasets: [{}]\n", sources);
  };
  const std::pair<const char*, const char*> read[] = {
      {"{path: a, split: test}, {path: b, split: test}", "test"},
      {"{path: a}, {path: b}", ""},
      {"a, b", ""},
      {"{path: a, split: test}, {path: b.jsonl}", "test"},
      {"{path: a, split: test}, b.jsonl", "test"},
      {"{path: a.jsonl, split: train}, {path: b.jsonl}", "train"},
      {"{path: a.jsonl, split: train}, {path: json, data_files: b.jsonl, split: test}", "train"},
      {"{path: a.jsonl, split: 'test[:10]'}, {path: b, split: 'test[:10]'}", "test[:10]"},
  };
  for (const auto& [sources, split] : read)
    EXPECT_EQ(recipe(config(sources)).value.data.dataset_test_split.value_or(""), split) << sources;
  for (const char* sources : {"{path: a, split: test}, {path: b, split: train}", "{path: a, split: test}, {path: b}",
                              "{path: a, split: test}, b", "{path: a.jsonl, split: 'test[:10]'}, {path: b.jsonl}",
                              "{path: a, split: 'test[:10]'}, {path: b, split: test}"})
    EXPECT_THAT(refusal_of_recipe(config(sources)),
                ::testing::AllOf(HasSubstr("evaluation rows have one split (dataset_test_split)"),
                                 HasSubstr("name files instead of folders")))
        << sources;
}

/// The prompt and completion that a row becomes, with a bar between them.
std::string text_of(const Config& config, std::string_view row) {
  const RawRows rows = data_rows(config, Split::train);
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const Sample sample = read_sample(rows.parse(i), {});
    EXPECT_EQ(sample.shape, RowShape::text_pair);
    if (rows.parse(i)["id"] == row) return sample.prompt + "|" + sample.text;
  }
  return "no such row";
}

// The example from axolotl's page on instruction tuning, whose format has no system prompt; and everything that `type`
// may contain.
TEST(Axolotl, AFormatMakesPromptsOfSeveralColumns) {
  const qtrain::testing::TempFolder folder;
  write_file(folder / "d.jsonl", R"({"id": "both", "question": "q {x}", "context": "c", "answer": "a", "sys": "s"}
{"id": "no input", "question": "q", "context": "", "answer": "a", "sys": "s"}
{"id": "no system", "question": "q", "context": "c", "answer": "a"}
{"id": "neither", "question": "q", "answer": "a", "sys": null}
)");
  const auto config = [&](const std::string& type) {
    return recipe(fmt::format("base_model: m\nmicro_batch_size: 1\nval_set_size: 0\ndatasets:\n"
                              "  - path: {}\n    type:\n      field_instruction: question\n      field_input: context\n"
                              "      field_output: answer\n{}",
                              (folder / "d.jsonl").string(), type))
        .value;
  };
  const Config plain = config("      format: \"[INST] {instruction} [/INST]\"\n");
  EXPECT_EQ(text_of(plain, "both"), "[INST] q {x} [/INST]|a");
  EXPECT_FALSE(plain.data.assistant_only_loss) << "a text has no roles";
  EXPECT_EQ(plain.data.completion_only_loss, true);
  const Config full = config(
      "      format: |-\n        User: {instruction} {input}\n        Assistant:\n"
      "      no_input_format: \"User: {instruction}\\nAssistant:\"\n"
      "      field_system: sys\n      system_format: \"{{system}}: {system}\\n\"\n");
  EXPECT_EQ(text_of(full, "both"), "{system}: s\nUser: q {x} c\nAssistant:|a");
  EXPECT_EQ(text_of(full, "no input"), "{system}: s\nUser: q\nAssistant:|a");
  EXPECT_EQ(text_of(full, "no system"), "User: q c\nAssistant:|a");
  EXPECT_EQ(text_of(full, "neither"), "User: q\nAssistant:|a");
  const Config constant = config("      format: \"{instruction}\"\n      system_prompt: \"Be {brief}. \"\n");
  EXPECT_EQ(text_of(constant, "both"), "Be {brief}. q {x}|a");
}

TEST(Axolotl, AColumnOfAFormatMayBeCalledAsAnotherField) {
  const qtrain::testing::TempFolder folder;
  write_file(folder / "d.jsonl", R"({"id": "one", "input": "what", "context": "where", "output": "a"})");
  const Config c = recipe(fmt::format("base_model: m\nmicro_batch_size: 1\nval_set_size: 0\ndatasets:\n"
                                      "  - path: {}\n    type:\n      field_instruction: input\n"
                                      "      field_input: context\n      format: \"{{instruction}} / {{input}}\"\n",
                                      (folder / "d.jsonl").string()))
                       .value;
  EXPECT_EQ(text_of(c, "one"), "what / where|a");
}

}  // namespace
}  // namespace qtrain
