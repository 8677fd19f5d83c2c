#include "hub/name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using testing::TempFolder;

TEST(HubName, IdsAreThoseOfHuggingfaceHub) {
  for (const char* id : {"foo", "foo/bar", "123", "Foo-BAR_foo.bar123", "Qwen/Qwen3-0.6B", "_a/b_"})
    EXPECT_TRUE(is_repo_id(id)) << id;
  for (const char* id : {"", "/", "a/", "/b", "datasets/foo/bar", ".repo_id", "foo--bar", "foo.git", "a..b", "a/-b",
                         "a/b-", "a b", "a/b\n", "a/\x1b[2J", "~/model", "./model", "../model", "a/b\xc3\xa4"})
    EXPECT_FALSE(is_repo_id(id)) << id;
  EXPECT_TRUE(is_repo_id(std::string(96, 'a')));
  EXPECT_FALSE(is_repo_id(std::string(97, 'a')));
}

TEST(HubName, RevisionsStayWithinAFolder) {
  for (const char* revision : {"main", "v1.0", "refs/pr/1", "0123abc", "feature/x_y"})
    EXPECT_TRUE(is_revision(revision)) << revision;
  for (const char* revision : {"", "..", "../x", "a/../b", "/etc", "a//b", "a/", "-x", "a b", "a:b", "a~1", "a^", "a\n",
                               "x.", "x.lock", "a..b", "a\\b"})
    EXPECT_FALSE(is_revision(revision)) << revision;
}

TEST(HubName, PathsInARepositoryStayWithinAFolder) {
  for (const char* path : {"config.json", "a/b/c.parquet", "...", "a b", "..a"})
    EXPECT_TRUE(is_safe_path(path)) << path;
  for (const char* path :
       {"", "/etc/passwd", "../x", "a/../../x", "a/..", "./x", "a//b", "a/", "a\nb", "a\x1b", "..\\x", "C:\\x"})
    EXPECT_FALSE(is_safe_path(path)) << path;
}

struct NamedModel {
  const char *text, *repo, *revision, *file, *quant;
};
TEST(HubName, IsParsed) {
  constexpr NamedModel kModels[] = {
      {"Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", "main", "", ""},
      {"gpt2", "gpt2", "main", "", ""},
      {"o/n@v1", "o/n", "v1", "", ""},
      {"o/n:Q4_K_M", "o/n", "main", "", "Q4_K_M"},
      {"o/n@v2:Q8_0", "o/n", "v2", "", "Q8_0"},
      {"o/n@refs/pr/12", "o/n", "refs/pr/12", "", ""},
      {"o/n@refs/pr/1/x.gguf", "o/n", "refs/pr/1", "x.gguf", ""},
      {"o/n/a/x.gguf", "o/n", "main", "a/x.gguf", ""},
      {"hf://o/n.json", "o/n.json", "main", "", ""},
      {"hf://models/o/n", "o/n", "main", "", ""},
  };
  for (const NamedModel& model : kModels) {
    const auto name = parse_hub_name(RepoKind::model, model.text);
    ASSERT_TRUE(name) << model.text;
    EXPECT_EQ(name->repo, model.repo) << model.text;
    EXPECT_EQ(name->revision, model.revision) << model.text;
    EXPECT_EQ(name->file, model.file) << model.text;
    EXPECT_EQ(name->quant, model.quant) << model.text;
  }
  for (const char* path : {"", "/models/x", "./x", "../x", "~/x", "a/b/c", "a/b.json", "x.gguf", "a/b:", "a/b:../x",
                           "a/b/../c.gguf", "a/b/", "a/b@", "a/b@../x", "hf://datasets/a/b", "C:/x", "a/b\x07"})
    EXPECT_FALSE(parse_hub_name(RepoKind::model, path)) << path;
  const auto rows = parse_hub_name(RepoKind::dataset, "hf://datasets/o/n@v2/data/train-*.parquet");
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->text(), "o/n@v2/data/train-*.parquet");
  EXPECT_FALSE(parse_hub_name(RepoKind::dataset, "data/train.jsonl"));
  EXPECT_FALSE(parse_hub_name(RepoKind::dataset, "o/n/../../etc"));
  EXPECT_FALSE(parse_hub_name(RepoKind::dataset, "hf://o/n"));
}

// A path wins, and so does a folder in which the path could be.
TEST(HubName, IsNoPath) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.path() / "runs");
  EXPECT_FALSE(hub_name_unless_path(RepoKind::model, folder.path().string()));
  EXPECT_FALSE(hub_name_unless_path(RepoKind::model, (folder.path() / "none").string()));
  EXPECT_TRUE(hub_name_unless_path(RepoKind::model, "no-such-owner/no-such-name"));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  std::filesystem::create_symlink("loop", "loop");
  for (const char* path : {"runs", "runs/none", "loop", "loop/none"})
    EXPECT_FALSE(hub_name_unless_path(RepoKind::model, path)) << path;
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace qtrain
