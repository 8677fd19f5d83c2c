#include "app/next_commands.h"

#include <gmock/gmock.h>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "tests/hub/variables.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(NextCommands, AreThoseThatTheResultIsGoodFor) {
  const testing::TempFolder folder;
  const fs::path out = folder / "my out", model = folder / "model";
  fs::create_directories(out);
  fs::create_directories(model);
  ResolvedConfig config;
  config.value.model.model_name_or_path = model.string();
  const FinishedOutput output{.config = config, .config_file = "run.json", .folder = out};
  EXPECT_THAT(next_commands(output), Not(Contains(HasSubstr("chat")))) << "there is no tokenizer";
  EXPECT_THAT(next_commands(output), Not(Contains(HasSubstr("merge"))));
  EXPECT_THAT(next_commands(output), Not(Contains(HasSubstr("eval")))) << "there are no rows to evaluate";
  write_file(model / "tokenizer.json", "{}");
  write_file(out / "adapter_config.json", "{}");
  const std::string with = "--model " + model.string() + " --adapter '" + out.string() + "'";
  EXPECT_EQ(next_commands(output).front(), "qtrain generate " + with + " --raw --prompt \"...\"")
      << "there is no template";
  EXPECT_THAT(next_commands(output), Not(Contains(HasSubstr("chat"))));
  write_file(model / "chat_template.jinja", "{{ messages }}");
  EXPECT_THAT(next_commands(output), Contains("qtrain chat " + with));
  EXPECT_THAT(next_commands(output), Contains(StartsWith("qtrain merge " + with + " --output '")));
}

TEST(NextCommands, NameASnapshotAsTheHubDoesIfItsMainBranchIsThere) {
  const testing::TempFolder folder;
  const test::HubVariables variables({{"HF_HUB_CACHE", (folder / "hub").string()}});
  const std::string commit(40, 'a');
  const fs::path repo = folder / "hub/models--o--n", model = repo / "snapshots" / commit;
  fs::create_directories(model);
  fs::create_directories(repo / "refs");
  write_file(model / "tokenizer.json", "{}");
  write_file(model / "chat_template.jinja", "{{ messages }}");
  write_file(folder / "adapter_config.json", "{}");
  ResolvedConfig config;
  config.value.model.model_name_or_path = model.string();
  const FinishedOutput output{.config = config, .config_file = "run.json", .folder = folder.path()};
  const auto named = [&](const std::string& name) {
    return "qtrain chat --model " + name + " --adapter " + folder.path().string();
  };
  write_file(repo / "refs/main", commit);
  EXPECT_EQ(next_commands(output).front(), named("o/n"));
  fs::create_directories(repo / "snapshots" / std::string(40, 'b'));
  write_file(repo / "refs/main", std::string(40, 'b'));
  EXPECT_EQ(next_commands(output).front(), named(model.string())) << "the name means another snapshot";
}

TEST(NextCommands, AskForTheSameConfig) {
  const testing::TempFolder folder;
  ResolvedConfig config;
  config.origin["eval_dataset_name"] = "run.json";
  const FinishedOutput output{.config = config,
                              .config_file = "run.json",
                              .overrides = {{"output_dir", "my out"}, {"max_steps", "2"}},
                              .folder = folder.path()};
  EXPECT_THAT(next_commands(output), Contains("qtrain eval run.json 'output_dir=my out' max_steps=2"));
}

TEST(SavedFiles, NameWeightsAndCheckpoints) {
  const testing::TempFolder folder;
  write_file(folder / "model.safetensors", std::string(1'500'000, 'x'));
  EXPECT_EQ(saved_files(folder.path()), "model.safetensors (1.5 MB)");
  write_file(folder / "model-2.safetensors", "x");
  EXPECT_EQ(saved_files(folder.path()), "2 weight files (1.5 MB)");
}

TEST(ShellWord, IsQuotedWhereItHasToBe) {
  EXPECT_EQ(shell_word("/a/b-c_1.json"), "/a/b-c_1.json");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's $x"), "'it'\\''s $x'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("it's\n\x1b[31m\\"), R"($'it\'s\012\033[31m\\')");
  EXPECT_EQ(shell_word("caf\xc3\xa9 1"), "'caf\xc3\xa9 1'");
}

}  // namespace
}  // namespace qtrain
